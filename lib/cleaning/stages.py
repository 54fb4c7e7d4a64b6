"""The three stages of cleaning (OpenPI-C paper, sec. 2 and appendix B): `clean` turns votes into a cleaned data set.

Items have the ids of the raw data, see `lib.cleaning.items`.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pandas as pd

from lib.cleaning.agreement import agreement
from lib.cleaning.items import CHOICES, DROPPED, KEPT, RULES, STAGES, Dropped, ItemTree
from lib.data import Procedure
from lib.data.procedures import count
from lib.votes import Vote, check_vote


@dataclass(frozen=True)
class Rules:
    """When an item is dropped.

    Attributes
    ----------
    order : tuple of str
        Stages in the order in which they are applied; one that is left out drops nothing.
    procedure_against, step_against, change_against : int
        Votes against an item that drop it: at least two of three, two of three, and one of two in the paper.
    procedure_votes, step_votes, change_votes : int
        Votes that an item needs; with fewer, `clean` refuses.
    drop_empty_steps : bool
        After the votes, drop steps without a state change.
    minimum_steps : int
        Then drop procedures with fewer steps.
    remove_markup : bool
        Remove runs of six and more `#` from step texts, where the crawl of the raw data had pictures and lists.
    """

    order: tuple[str, ...] = STAGES
    procedure_against: int = 2
    step_against: int = 2
    change_against: int = 1
    procedure_votes: int = 3
    step_votes: int = 3
    change_votes: int = 2
    drop_empty_steps: bool = True
    minimum_steps: int = 3
    remove_markup: bool = True

    def __post_init__(self):
        """Refuse unknown stages."""
        if unknown := set(self.order) - set(STAGES):
            raise ValueError(f"order has {', '.join(sorted(unknown))}; stages: {', '.join(STAGES)}")

    def against(self, stage: str) -> int:
        """Return how many votes against an item drop it."""
        return getattr(self, f"{stage}_against")

    def votes(self, stage: str) -> int:
        """Return how many votes an item needs."""
        return getattr(self, f"{stage}_votes")


@dataclass(frozen=True)
class CleaningResult:
    """What remains, what was dropped and why.

    Attributes
    ----------
    procedures : list of Procedure
        In the given order, steps renumbered from 1.
    dropped : list of Dropped
        Every procedure, step and change that is gone, in the order in which they went.
    agreement : DataFrame
        See `lib.cleaning.agreement`; empty where decisions were applied instead of votes.
    flow : DataFrame
        Procedures, steps and changes left after each stage.
    votes : list of Vote
        The votes on what remains, under its new ids: cleaning the result with them changes nothing.
    """

    procedures: list[Procedure]
    dropped: list[Dropped]
    agreement: pd.DataFrame = field(repr=False)
    flow: pd.DataFrame = field(repr=False)
    votes: list[Vote] = field(repr=False)


@dataclass(frozen=True)
class Decisions:
    """What became of every item: id -> `kept` or `dropped`. `derive_decisions` reads it off a released data set."""

    procedures: Mapping[str, str]
    steps: Mapping[str, str]
    changes: Mapping[str, str]

    def of(self, stage: str) -> Mapping[str, str]:
        """Return the decisions of one stage."""
        return getattr(self, f"{stage}s")


def clean(
    procedures: Sequence[Procedure],
    votes: Sequence[Vote] | None = None,
    decisions: Decisions | None = None,
    missing: str = "error",
    rules: Rules | None = None,
) -> CleaningResult:
    """Apply the stages to raw procedures, then the rules.

    Parameters
    ----------
    procedures : sequence of Procedure
    votes : sequence of Vote, optional
        In any order. Only items that the earlier stages leave need votes.
    decisions : Decisions, optional
        Instead of votes.
    missing : {"error", "keep"}
        What to do with an item that has no vote at all, or no decision.
    rules : Rules, optional
        Default: the paper's.

    Raises
    ------
    ValueError
        If both votes and decisions are given, a vote names no item or says something impossible, one annotator votes
        twice on an item, or an item has too few votes: names the item.
    """
    rules = rules or Rules()
    if missing not in {"error", "keep"}:
        raise ValueError(f"missing={missing!r}: expected error or keep")
    if votes is not None and decisions is not None:
        raise ValueError("give votes or decisions, not both")
    tree = ItemTree(procedures)
    by_item = _by_item(votes or (), tree)
    rows = [("raw", *tree.left())]
    for stage in rules.order:
        for item in tree.present(stage):
            if decisions is not None:
                reason = _decided(stage, item, decisions, missing)
            else:
                reason = _voted(stage, item, by_item[stage].get(item, ()), missing, rules)
            if reason:
                tree.drop(stage, item, stage, reason)
        rows.append((stage, *tree.left()))
    tree.apply_rules(rules.drop_empty_steps, rules.minimum_steps)
    rows.append((RULES, *tree.left()))
    flow = pd.DataFrame(rows, columns=["after", "procedures", "steps", "state changes"]).set_index("after")
    kept, renamed = tree.build(procedures, rules.remove_markup)
    left = [replace(vote, item=renamed[vote.item]) for vote in votes or () if vote.item in renamed]
    return CleaningResult(kept, tree.dropped, agreement(votes or (), CHOICES), flow, left)


def to_judge(
    procedures: Sequence[Procedure], votes: Sequence[Vote], stage: str, rules: Rules | None = None
) -> list[str]:
    """Return the ids that a stage has to judge: what the stages before it leave.

    An item whose votes there are not complete is left, so that annotation of all stages can begin at any time.
    """
    rules = rules or Rules()
    tree = ItemTree(procedures)
    by_item = _by_item(votes, tree)
    for earlier in rules.order[: rules.order.index(stage)]:
        for item in tree.present(earlier):
            given = by_item[earlier].get(item, ())
            if len(given) >= rules.votes(earlier) and (reason := _voted(earlier, item, given, "keep", rules)):
                tree.drop(earlier, item, earlier, reason)
    return tree.present(stage)


def _by_item(votes: Sequence[Vote], tree: ItemTree) -> dict[str, dict[str, list[Vote]]]:
    """Return stage -> item -> votes, checked."""
    known = {stage: set(items) for stage, items in tree.items.items()}
    grouped: dict[str, dict[str, list[Vote]]] = {stage: defaultdict(list) for stage in STAGES}
    for vote in votes:
        check_vote(vote, CHOICES, known)
        same = grouped[vote.stage][vote.item]
        if any(other.annotator == vote.annotator for other in same):
            raise ValueError(f"votes: {vote.annotator!r} votes on {vote.stage} {vote.item!r} twice; keep one of them")
        same.append(vote)
    return grouped


def _voted(stage: str, item: str, votes: Sequence[Vote], missing: str, rules: Rules) -> str:
    """Return why the votes drop an item; empty where they keep it."""
    if not votes and missing == "keep":
        return ""
    if len(votes) < rules.votes(stage):
        raise ValueError(
            f"{stage} {item!r} has {len(votes)} of the {rules.votes(stage)} votes that it needs: collect them, "
            + ("or pass missing='keep'" if not votes else f"or lower Rules({stage}_votes=...)")
        )
    against = sorted(vote.vote for vote in votes if vote.vote != CHOICES[stage][0])
    if len(against) < rules.against(stage):
        return ""
    return f"{len(against)} of {len(votes)} say {' or '.join(dict.fromkeys(against))}"


def _decided(stage: str, item: str, decisions: Decisions, missing: str) -> str:
    """Return `decision` where an item is to be dropped; empty where it is kept."""
    if (fate := decisions.of(stage).get(item)) is None:
        if missing == "keep":
            return ""
        raise ValueError(f"{stage} {item!r} has no decision: derive them from the same data, or pass missing='keep'")
    if fate not in {KEPT, DROPPED}:
        raise ValueError(f"the decision on {stage} {item!r} is {fate!r}, expected {KEPT} or {DROPPED}")
    return "decision" if fate == DROPPED else ""


def sizes(before: Sequence[Procedure], after: Sequence[Procedure]) -> pd.DataFrame:
    """Return the numbers of procedures, steps and state changes before and after: Table 1 of the result."""
    rows = {"raw": count(before), "cleaned": count(after)}
    return pd.DataFrame.from_dict(rows, orient="index", columns=["procedures", "steps", "state changes"])
