"""Training and prediction examples: one a step, as text."""

from collections.abc import Sequence
from dataclasses import dataclass

from lib.data.procedures import Procedure, step_id
from lib.text import prompt, to_answer


@dataclass(frozen=True)
class Example:
    """One step: its id, the model's input and, where known, the target text."""

    id: str
    prompt: str
    target: str


def step_examples(procedures: Sequence[Procedure]) -> list[Example]:
    """Return one example a step, in order: goal, past steps, step and question; the target is the step's answer."""
    return [
        Example(
            step_id(procedure.id, step.number),
            prompt(procedure.goal, [past.text for past in procedure.steps[:index]], step.text),
            to_answer(step.changes),
        )
        for procedure in procedures
        for index, step in enumerate(procedure.steps)
    ]
