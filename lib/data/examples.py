"""Training and prediction examples: one a step, as text."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from lib.data.procedures import Procedure, step_id
from lib.text import StateChange, prompt, to_answer


@dataclass(frozen=True)
class Example:
    """One step: its id, the model's input and, where known, the target text."""

    id: str
    prompt: str
    target: str


def step_examples(procedures: Sequence[Procedure], goal: bool = True, states: bool = False) -> list[Example]:
    """Return one example a step, in order: goal, past steps, step and question; the target is the step's answer.

    Parameters
    ----------
    procedures : sequence of Procedure
    goal : bool
        Whether the model sees the goal; Tandon et al. (2020) did not give it.
    states : bool
        `+ concat states`: every past step is followed by its gold changes.
    """
    return [
        Example(
            step_id(procedure.id, step.number),
            step_prompt(procedure, index, goal, [past.changes for past in procedure.steps[:index]] if states else None),
            to_answer(step.changes),
        )
        for procedure in procedures
        for index, step in enumerate(procedure.steps)
    ]


def entity_examples(
    procedures: Sequence[Procedure], goal: bool = True, unchanged: int = 0, seed: int = 0
) -> list[Example]:
    """Return one example a step and gold entity, entities sorted; the target is what the step changes about it.

    Parameters
    ----------
    procedures : sequence of Procedure
    goal : bool
        Whether the model sees the goal.
    unchanged : int
        Up to so many more examples a step, of entities that other steps of the procedure change and this one does not;
        the target says so. 0 in the paper: its model is asked only about entities that change, though the first stage
        also names others.
    seed : int
        Of their choice.
    """
    draw = random.Random(seed)
    examples = []
    for procedure in procedures:
        everything = {change.entity for step in procedure.steps for change in step.changes}
        for index, step in enumerate(procedure.steps):
            changed = {change.entity for change in step.changes}
            others = sorted(everything - changed)
            asked = [*sorted(changed), *draw.sample(others, min(unchanged, len(others)))]
            examples += [
                Example(
                    step_id(procedure.id, step.number),
                    step_prompt(procedure, index, goal, entity=entity),
                    to_answer([change for change in step.changes if change.entity == entity]),
                )
                for entity in asked
            ]
    return examples


def step_prompt(
    procedure: Procedure,
    index: int,
    goal: bool = True,
    states: Sequence[Sequence[StateChange]] | None = None,
    entity: str | None = None,
) -> str:
    """Return the input of the step at `index`.

    `states` are the changes of each past step, gold or predicted; `entity` is the one that is asked about.
    """
    past = [step.text for step in procedure.steps[:index]]
    return prompt(procedure.goal if goal else "", past, procedure.steps[index].text, entity, states)
