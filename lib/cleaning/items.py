"""Procedures as trees of items that can be dropped: procedures hold steps, steps hold state changes.

Items have ids in the numbering of the raw data: a procedure its url, a step `url||n`, a state change `url||n||k`, the
k-th of the step's sentences, from 1.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from lib.data import Procedure, Step, step_id

#: What an annotator may say at each stage; the first answer speaks for the item, the others against it.
CHOICES = {
    "procedure": ("procedure", "not_procedure"),
    "step": ("valid", "invalid"),
    "change": ("certain", "uncertain", "impossible"),
}
STAGES = tuple(CHOICES)
RULES = "rules"
KEPT, DROPPED = "kept", "dropped"


@dataclass(frozen=True)
class Dropped:
    """One item that was dropped.

    Attributes
    ----------
    kind : {"procedure", "step", "change"}
    item : str
        Its id in the raw data.
    stage : str
        `procedure`, `step`, `change`, or `rules`.
    reason : str
        The votes against it, the rule, or that it went with the step or procedure that holds it.
    """

    kind: str
    item: str
    stage: str
    reason: str


class ItemTree:
    """Which items are still there: procedures hold steps, steps hold changes."""

    def __init__(self, procedures: Sequence[Procedure]):
        self.items: dict[str, list[str]] = {stage: [] for stage in STAGES}
        self.inside: dict[str, list[str]] = defaultdict(list)
        self.gone: set[str] = set()
        self.dropped: list[Dropped] = []
        for procedure in procedures:
            if procedure.id in self.inside:
                raise ValueError(f"procedure {procedure.id} stands there twice")
            self.items["procedure"].append(procedure.id)
            self.inside[procedure.id] = steps = [step_id(procedure.id, step.number) for step in procedure.steps]
            self.items["step"] += steps
            for name, step in zip(steps, procedure.steps, strict=True):
                self.inside[name] = [f"{name}||{k}" for k in range(1, len(step.sentences) + 1)]
                self.items["change"] += self.inside[name]

    def present(self, stage: str) -> list[str]:
        """Return the ids that are left of one kind."""
        return [item for item in self.items[stage] if item not in self.gone]

    def left(self) -> tuple[int, ...]:
        """Return how many procedures, steps and changes are left."""
        return tuple(len(self.present(stage)) for stage in STAGES)

    def drop(self, kind: str, item: str, stage: str, reason: str) -> None:
        """Drop an item with all that it holds."""
        self.gone.add(item)
        self.dropped.append(Dropped(kind, item, stage, reason))
        for inner in self.inside.get(item, ()):
            if inner not in self.gone:
                self.drop(STAGES[STAGES.index(kind) + 1], inner, stage, f"went with its {kind}")

    def apply_rules(self, drop_empty_steps: bool, minimum_steps: int) -> None:
        """Drop what is empty or too short; the order matters, since empty steps shorten procedures."""
        if drop_empty_steps:
            for item in self.present("step"):
                if all(inner in self.gone for inner in self.inside[item]):
                    self.drop("step", item, RULES, "no state change left")
        for item in self.present("procedure"):
            left = sum(inner not in self.gone for inner in self.inside[item])
            if left < minimum_steps:
                self.drop("procedure", item, RULES, f"{left} steps left, fewer than {minimum_steps}")

    def build(self, procedures: Sequence[Procedure], remove_markup: bool) -> tuple[list[Procedure], dict[str, str]]:
        """Return what is left, renumbered, and raw id -> new id."""
        kept, renamed = [], {}
        for procedure in procedures:
            if procedure.id in self.gone:
                continue
            renamed[procedure.id] = procedure.id
            steps = [step for step in procedure.steps if step_id(procedure.id, step.number) not in self.gone]
            new = []
            for number, step in enumerate(steps, start=1):
                old, name = step_id(procedure.id, step.number), step_id(procedure.id, number)
                renamed[old] = name
                left = [k for k, inner in enumerate(self.inside[old]) if inner not in self.gone]
                renamed |= {f"{old}||{k + 1}": f"{name}||{place}" for place, k in enumerate(left, start=1)}
                new.append(_step(number, step, left, remove_markup))
            kept.append(replace(procedure, steps=tuple(new)))
        return kept, renamed


def item_ids(procedures: Sequence[Procedure]) -> dict[str, list[str]]:
    """Return the ids of all items by stage, in order."""
    tree = ItemTree(procedures)
    return {stage: tree.present(stage) for stage in STAGES}


def change_id(url: str, number: int, position: int) -> str:
    """Return a state change's id, `url||n||k`; `position` is k, from 1, among the step's sentences."""
    return f"{step_id(url, number)}||{position}"


def without_markup(text: str) -> str:
    """Return a step's text without runs of six and more `#`."""
    return re.sub("#{6,}", "", text).strip()


def _step(number: int, step: Step, left: Sequence[int], remove_markup: bool) -> Step:
    """Return a step with a new number and the changes at the given positions of its sentences."""
    parsed = len(step.changes)
    return Step(
        number,
        without_markup(step.text) if remove_markup else step.text,
        tuple(step.changes[k] for k in left if k < parsed),
        tuple(step.unparsed[k - parsed] for k in left if k >= parsed),
    )
