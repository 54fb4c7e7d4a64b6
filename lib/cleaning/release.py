"""What the authors' cleaning did, read off the released data set: `derive_decisions` aligns it with the original.

Nothing here is scored against the release: decisions that were derived from it reproduce it by construction, and what
they cannot reproduce is counted by kind.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from rapidfuzz import fuzz, process

from lib.cleaning.items import DROPPED, KEPT, change_id, without_markup
from lib.cleaning.stages import Decisions
from lib.data import Procedure, Step, step_id
from lib.text import parse_sentence

#: How a released change was found among the original ones, or why it was not.
IDENTICAL = "identical"
WERE = "`were` is `was` in the original"
EDITED = "edited"
NO_ANSWERS = "original step has no answers"
ABSENT = "not among the original step's answers"
HOW = (IDENTICAL, WERE, EDITED, NO_ANSWERS, ABSENT)
BOUNDS = ["at least", "at most", "of, at least", "of, at most", "rules alone"]
SIMILAR = 95.0  # of 100: such pairs of about one entity are one small word or a few letters apart


@dataclass(frozen=True)
class DerivedDecisions(Decisions):
    """Decisions read off a release, and what was met on the way.

    Attributes
    ----------
    found : Counter
        How the released changes were found, by the kinds in `HOW`.
    texts : Counter
        How the released step texts were found: `identical`, `markup removed`, `edited`.
    """

    found: Counter
    texts: Counter


def derive_decisions(original: Sequence[Procedure], released: Sequence[Procedure]) -> DerivedDecisions:
    """Return what became of every procedure, step and state change of `original` in `released`.

    Procedures are joined by unescaped url. Steps are joined by text in the order of the procedure, never by number:
    the release renumbers. Changes are joined by their sentences within the step, each at most once.

    Parameters
    ----------
    original, released : sequence of Procedure
        The same split of OpenPI and of OpenPI-C.

    Raises
    ------
    ValueError
        If the release has a procedure or a step that the original lacks, naming it.
    """
    by_url = {procedure.id: procedure for procedure in released}
    if extra := by_url.keys() - {procedure.id for procedure in original}:
        raise ValueError(f"{len(extra)} released procedures are not in the original, such as {sorted(extra)[0]}")
    procedures, steps, changes = {}, {}, {}
    found, texts = Counter(), Counter()
    for procedure in original:
        kept = by_url.get(procedure.id)
        procedures[procedure.id] = KEPT if kept else DROPPED
        partner = align_steps(procedure, kept) if kept else {}
        for step in procedure.steps:
            name = step_id(procedure.id, step.number)
            steps[name] = KEPT if step.number in partner else DROPPED
            matched = {}
            if step.number in partner:
                texts[_text_kind(step.text, partner[step.number].text)] += 1
                matched, how = match_changes(step.sentences, partner[step.number].sentences)
                found.update(how)
            for k in range(1, len(step.sentences) + 1):
                changes[change_id(procedure.id, step.number, k)] = KEPT if k - 1 in matched else DROPPED
    return DerivedDecisions(procedures, steps, changes, found, texts)


def align_steps(original: Procedure, released: Procedure) -> dict[int, Step]:
    """Return original step number -> released step: the order-preserving alignment with the most in common.

    Raises
    ------
    ValueError
        If a released step has no partner.
    """
    before, after = original.steps, released.steps
    gain = np.array([[_likeness(old, new) for new in after] for old in before])
    best = np.zeros((len(before) + 1, len(after) + 1))
    for i in range(len(before)):
        for j in range(len(after)):
            paired = best[i, j] + gain[i, j] if gain[i, j] else 0.0
            best[i + 1, j + 1] = max(best[i, j + 1], best[i + 1, j], paired)
    partner, i, j = {}, len(before), len(after)
    while i and j:
        if best[i, j] == best[i - 1, j]:
            i -= 1
        elif best[i, j] == best[i, j - 1]:
            j -= 1
        else:
            i, j = i - 1, j - 1
            partner[before[i].number] = after[j]
    if missing := {step.number for step in after} - {step.number for step in partner.values()}:
        raise ValueError(f"released step {step_id(released.id, min(missing))} has no partner in the original")
    return partner


def match_changes(original: Sequence[str], released: Sequence[str]) -> tuple[dict[int, int], Counter]:
    """Return original position -> released position of one step's sentences, and how the released ones were found."""
    matched: dict[int, int] = {}
    left = dict(enumerate(released))
    how: Counter = Counter()
    # The published original had every `were` turned into `was`, inside words too: `lowered` became `lowasd`.
    for kind, form in ((IDENTICAL, str), (WERE, lambda sentence: sentence.replace("were", "was"))):
        for position, sentence in enumerate(original):
            same = (j for j, other in left.items() if form(other) == sentence)
            if position not in matched and (j := next(same, None)) is not None:
                matched[position] = j
                del left[j]
                how[kind] += 1
    free = {i: sentence for i, sentence in enumerate(original) if i not in matched}
    for j, sentence in left.items():
        about_it = {i: other for i, other in free.items() if _same_entity(sentence, other)}
        near = process.extractOne(sentence, about_it, scorer=fuzz.ratio, score_cutoff=SIMILAR)
        if near:
            matched[near[2]] = j
            del free[near[2]]
        how[EDITED if near else ABSENT if original else NO_ANSWERS] += 1
    return matched, how


def compare(cleaned: Sequence[Procedure], released: Sequence[Procedure]) -> dict[str, tuple[int, int]]:
    """Return, for procedures, steps and changes, how many of the release are reproduced, and how many it has.

    A change counts when a step of the same text has the same sentence, a step when all of its changes count and it
    has no other, a procedure when all of its steps count in the same order and it has no other.
    """
    by_url = {procedure.id: procedure for procedure in cleaned}
    same, total = Counter(), Counter()
    for procedure in released:
        ours = by_url.get(procedure.id)
        by_text: dict[str, list[Counter]] = {}
        for step in ours.steps if ours else ():
            by_text.setdefault(step.text, []).append(Counter(step.sentences))
        for step in procedure.steps:
            theirs = Counter(step.sentences)
            candidates = by_text.get(step.text, [])
            nearest = max(
                candidates, key=lambda own: (own & theirs).total() - (own - theirs).total(), default=Counter()
            )
            if candidates:
                candidates.remove(nearest)
            same["state changes"] += (nearest & theirs).total()
            same["steps"] += nearest == theirs
            total["state changes"] += theirs.total()
            total["steps"] += 1
        same["procedures"] += ours is not None and _content(ours) == _content(procedure)
        total["procedures"] += 1
    return {kind: (same[kind], total[kind]) for kind in ("procedures", "steps", "state changes")}


def bounds(original: Sequence[Procedure], decisions: Decisions) -> pd.DataFrame:
    """Return how much each stage can have dropped at least and at most, given what the release still has.

    A missing procedure may have been dropped at stage 1, or have lost its steps later and gone by the rule of three
    steps. A missing step may have been dropped at stage 2, or have lost its last change and gone by the rule of
    empty steps. Only a missing change in a step that is still there identifies its stage. Stages 2 and 3 are
    bounded within the procedures that remain.

    Returns
    -------
    DataFrame
        A row a stage. `at least`, `at most`: items dropped there. `of, at least`, `of, at most`: the items that
        reached the stage in either case, since fewer changes reach stage 3 if stage 2 took the missing steps.
        `rules alone`: missing items that the rules drop whatever anybody voted (no change from the start, fewer than
        three steps with one). Frames of several splits can be added; `shares` divides.
    """
    missing = [procedure for procedure in original if decisions.procedures[procedure.id] == DROPPED]
    survivors = [procedure for procedure in original if decisions.procedures[procedure.id] == KEPT]
    fates: dict[str, list[list[str]]] = {KEPT: [], DROPPED: []}
    for procedure in survivors:
        for step in procedure.steps:
            ids = [change_id(procedure.id, step.number, k) for k in range(1, len(step.sentences) + 1)]
            fates[decisions.steps[step_id(procedure.id, step.number)]].append([decisions.changes[i] for i in ids])
    steps = len(fates[KEPT]) + len(fates[DROPPED])
    here, elsewhere = (sum(map(len, fates[fate])) for fate in (KEPT, DROPPED))
    gone = sum(step.count(DROPPED) for step in fates[KEPT])
    short = sum(sum(bool(step.sentences) for step in procedure.steps) < 3 for procedure in missing)
    empty = sum(not step for step in fates[DROPPED])
    return pd.DataFrame.from_dict(
        {
            "procedure": (0, len(missing), len(original), len(original), short),
            "step": (0, len(fates[DROPPED]), steps, steps, empty),
            "change": (gone, gone + elsewhere, here, here + elsewhere, 0),
        },
        orient="index",
        columns=BOUNDS,
    )


def shares(counts: pd.DataFrame) -> pd.DataFrame:
    """Return the bounds as shares in [0, 1]."""
    return pd.DataFrame(
        {bound: counts[bound] / counts[f"of, {bound}"] for bound in ("at least", "at most")}, index=counts.index
    )


def _content(procedure: Procedure) -> list[tuple[str, Counter]]:
    """Return texts and sentences of a procedure's steps, the order of the sentences aside."""
    return [(step.text, Counter(step.sentences)) for step in procedure.steps]


def _likeness(old: Step, new: Step) -> float:
    """Return how well two steps fit: 0 where their texts do not, else above 1, more with common sentences."""
    before, after = _squeezed(old.text), _squeezed(new.text)
    # Scripts of the crawled page, which the release removed, stand behind one original text.
    if before != after and after not in before and fuzz.ratio(before, after) < SIMILAR:
        return 0.0
    common = (Counter(old.sentences) & Counter(new.sentences)).total()
    return 1.0 + (before == after) + common / (len(new.sentences) + 1)


def _squeezed(text: str) -> str:
    """Return a text without markup and white space."""
    return re.sub(r"\s+", "", without_markup(text))


def _same_entity(one: str, other: str) -> bool:
    """Return whether two sentences are about the same entity; a sentence without one may be about any."""
    parsed = parse_sentence(one), parse_sentence(other)
    return None in parsed or parsed[0].entity == parsed[1].entity


def _text_kind(old: str, new: str) -> str:
    """Return how a released text differs from the original one."""
    if old == new:
        return "identical"
    return "markup removed" if without_markup(old) == new else "edited"
