"""State changes as sentences, prompts, and generated text back to sentences.

Two presets run through the project. `"released"` does what the released code does and counts what it loses;
`"safe"` adds the documented fixes. The default is `"released"`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

PRESETS = ("released", "safe")
NO_CHANGE = "There will be no change."


@dataclass(frozen=True)
class StateChange:
    """One change of one attribute of one entity; four strings."""

    entity: str
    attribute: str
    before: str
    after: str


@dataclass(frozen=True)
class SplitReport:
    """What `split_answer` kept and lost in one generated text.

    Attributes
    ----------
    kept : int
        Sentences returned.
    fragments_dropped : int
        Pieces that were no state change.
    unparseable : int
        1 when the text held something, yet neither a state change nor the no-change sentence; else 0.
    no_change : int
        1 when the text said that nothing changes; else 0.
    """

    kept: int
    fragments_dropped: int
    unparseable: int
    no_change: int


def to_sentence(change: StateChange) -> str:
    """Return the template sentence of a state change (OpenPI-C paper, sec. 4, Generation Baseline).

    Examples
    --------
    >>> to_sentence(StateChange("parsnip", "shape", "whole", "spiralled into ribbons"))
    'shape of parsnip was whole before and spiralled into ribbons afterwards'
    """
    return f"{change.attribute} of {change.entity} was {change.before} before and {change.after} afterwards"


def to_answer(changes: Sequence[StateChange]) -> str:
    """Return the target text of a step: its sentences joined with `, `, or the no-change sentence."""
    return ", ".join(map(to_sentence, changes)) if changes else NO_CHANGE


def is_no_change(sentence: str) -> bool:
    """Return whether a sentence says that nothing changes (any case, anything behind it: as released)."""
    return sentence.strip().lower().startswith("there will be no change")


def parse_sentence(sentence: str, preset: str = "released") -> StateChange | None:
    """Return the state change that a sentence states, or None when it states none.

    Parameters
    ----------
    sentence : str
        One sentence of the template `ATTRIBUTE of ENTITY was BEFORE before and AFTER afterwards`.
    preset : {"released", "safe"}
        `released` cuts at the first ` of `, then the first ` was `, ` before and ` and ` afterwards`; an
        attribute with ` of ` in it (`level of heat of pan`) therefore ends up in the entity, as in the released
        memory. `safe` cuts at the same places, which agree best with the annotators' own parts on OpenPI, but
        folds white space and also reads `were`, `before, and` and a full stop behind `afterwards`.

    Returns
    -------
    StateChange or None
        None when a separator is missing or a part is empty.
    """
    check_preset(preset)
    rest = sentence
    if preset == "safe":
        rest = " ".join(sentence.split())
        rest = re.sub(r" before ?, and ", " before and ", rest)
        if re.search(r" afterwards[.!]?$", rest) is None:
            return None
    parts = []
    for separator in (" of ", " was ", " before and ", " afterwards"):
        if preset == "safe" and separator == " was " and separator not in rest:
            separator = " were "
        head, found, rest = rest.partition(separator)
        if not found or not head.strip():
            return None
        parts.append(head)
    attribute, entity, before, after = parts
    return StateChange(entity, attribute, before, after)


def parse_sentences(sentences: Sequence[str], preset: str = "released") -> list[StateChange]:
    """Return the state changes of the sentences that state one, in order."""
    parsed = (parse_sentence(sentence, preset) for sentence in sentences)
    return [change for change in parsed if change is not None]


def split_answer(
    generated: str, preset: str = "released", return_report: bool = False
) -> list[str] | tuple[list[str], SplitReport]:
    """Return the state-change sentences of a generated text.

    Parameters
    ----------
    generated : str
        What a model wrote for one step.
    preset : {"released", "safe"}
        `released` cuts at every comma and keeps the pieces that contain the words `of`, `was`, `before` and
        `afterwards` anywhere, even inside other words, so a change whose own text has a comma is lost. `safe`
        cuts only where a new full change begins and keeps what `parse_sentence` can read.
    return_report : bool
        Also return what was lost.

    Returns
    -------
    list of str, or (list of str, SplitReport)
        Empty when the text says that nothing changes or when nothing in it could be read; the report tells the
        two apart.
    """
    check_preset(preset)
    pieces = [piece.strip() for piece in _pieces(generated, preset)]
    pieces = [piece for piece in pieces if piece]
    silent = [piece for piece in pieces if is_no_change(piece)]
    kept = [piece for piece in pieces if piece not in silent and _is_change(piece, preset)]
    if not return_report:
        return kept
    dropped = len(pieces) - len(kept) - len(silent)
    return kept, SplitReport(
        kept=len(kept),
        fragments_dropped=dropped,
        unparseable=int(not kept and not silent and bool(generated.strip())),
        no_change=int(not kept and bool(silent)),
    )


def prompt(
    goal: str,
    past: Sequence[str],
    step: str,
    entity: str | None = None,
    states: Sequence[Sequence[StateChange]] | None = None,
) -> str:
    """Return the model's input for one step: goal, past steps, current step and question.

    Parameters
    ----------
    goal : str
        The procedure's title; a full stop is added. Empty for a model that does not see the goal.
    past : sequence of str
        The steps before this one, in order.
    step : str
        The current step.
    entity : str, optional
        Ask about this entity only (OpenPI-C paper, sec. 4, Entity-Conditioned Prediction).
    states : sequence of sequences of StateChange, optional
        `+ concat states`: the changes of every past step, one sequence a step.

    Returns
    -------
    str
        One string joined with single spaces, in training and inference alike. (The released training code
        encodes the parts separately, so that no space piece stands between them.)

    Examples
    --------
    >>> prompt("Boil an Egg", [], "Fill a pot with water.")
    'Boil an Egg. Fill a pot with water. Now, what happens?'
    """
    told = list(past)
    if states is not None:
        if len(states) != len(past):
            raise ValueError(f"states has {len(states)} entries for {len(past)} past steps: give one list a step")
        told = [text for past_step, changes in zip(past, states, strict=True)
                for text in (past_step, to_answer(changes))]  # fmt: skip
    question = "Now, what happens?" if entity is None else f"Now, what happens to {entity}?"
    parts = [f"{goal.strip()}." if goal.strip() else "", *told, step, question]
    return " ".join(part.strip() for part in parts if part.strip())


def _pieces(generated: str, preset: str) -> list[str]:
    """Cut a generated text at commas: all of them, or (safe) those that do not stand inside a change."""
    if preset == "released":
        return generated.split(",")
    pieces: list[str] = []
    for part in generated.split(","):
        # A change is open from its ` of ` to its ` afterwards`.
        if pieces and " of " in pieces[-1] and not re.search(r" afterwards[.!]?\s*$", pieces[-1]):
            pieces[-1] += "," + part
        else:
            pieces.append(part)
    return pieces


def _is_change(piece: str, preset: str) -> bool:
    """Return whether a piece counts as a state change."""
    if preset == "released":
        return all(word in piece for word in ("of", "was", "before", "afterwards"))
    return parse_sentence(piece, preset="safe") is not None


def check_preset(preset: str) -> None:
    """Refuse an unknown preset."""
    if preset not in PRESETS:
        raise ValueError(f"preset={preset!r}: expected one of {', '.join(PRESETS)}")
