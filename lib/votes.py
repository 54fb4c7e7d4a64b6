"""Votes of annotators, one JSON line each: `read_votes` checks a file, `append_vote` adds to it at once.

A line is `{"stage": "step", "item": "url||2", "annotator": "a1", "vote": "valid"}`. A line whose vote is `withdrawn`
takes back what the same annotator said of the same item before, so that a slip can be undone and the file only grows.
"""

import json
import os
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from lib.data.lines import read_jsonl, require
from lib.paths import shown

WITHDRAWN = "withdrawn"


@dataclass(frozen=True)
class Vote:
    """What one annotator said of one item; four strings, `stage` names the question."""

    stage: str
    item: str
    annotator: str
    vote: str


def read_votes(
    path: Path,
    choices: Mapping[str, Collection[str]],
    items: Mapping[str, Collection[str]] | None = None,
) -> list[Vote]:
    """Return the votes that stand in a file, in its order, without those that were withdrawn.

    Parameters
    ----------
    path : Path
    choices : mapping
        Stage -> the values that a vote may have there.
    items : mapping, optional
        Stage -> the ids that may be voted on.

    Raises
    ------
    ValueError
        Names file and line: no JSON, an unknown stage, item or value, a second vote of one annotator on one item,
        or a withdrawal of nothing.
    """
    path = Path(path)
    standing: dict[tuple[str, str, str], tuple[int, Vote]] = {}
    for line, row in read_jsonl(path):
        vote = Vote(
            *(str(require(path, line, row, key, str)).strip() for key in ("stage", "item", "annotator", "vote"))
        )
        where = f"{shown(path)}, line {line}"
        check_vote(vote, choices, items, where)
        key = (vote.stage, vote.item, vote.annotator)
        if vote.vote == WITHDRAWN:
            if standing.pop(key, None) is None:
                raise ValueError(f"{where}: {vote.annotator!r} withdraws a vote on {vote.item!r} that was never given")
        elif key in standing:
            raise ValueError(
                f"{where}: {vote.annotator!r} votes on {vote.item!r} a second time, first in line {standing[key][0]}; "
                f"keep one of them, or withdraw the first with a line whose vote is {WITHDRAWN!r}"
            )
        else:
            standing[key] = (line, vote)
    return [vote for _, vote in standing.values()]


def check_vote(
    vote: Vote,
    choices: Mapping[str, Collection[str]],
    items: Mapping[str, Collection[str]] | None = None,
    where: str = "votes",
) -> None:
    """Refuse a vote with an unknown stage, item or value, or without an annotator."""
    if vote.stage not in choices:
        raise ValueError(f"{where}: stage {vote.stage!r}; expected one of {', '.join(choices)}")
    if vote.vote not in {*choices[vote.stage], WITHDRAWN}:
        raise ValueError(
            f"{where}: vote {vote.vote!r} on {vote.item!r}; stage {vote.stage} knows {', '.join(choices[vote.stage])}"
        )
    if not vote.annotator:
        raise ValueError(f"{where}: no annotator on {vote.item!r}; give everyone an id")
    if items is not None and vote.item not in items.get(vote.stage, ()):
        raise ValueError(
            f"{where}: no {vote.stage} has the id {vote.item!r}; the votes belong to other data, or the data was "
            "renumbered since"
        )


def append_vote(path: Path, vote: Vote) -> None:
    """Add a line and have the system write it out before returning, so that nothing is lost with a kernel.

    Raises
    ------
    OSError
        If the file cannot be written, naming it.
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "a+b") as file:
            # A file edited by hand, or cut by a full disk, may end within a line: never glue two together.
            if file.seek(0, os.SEEK_END) and (file.seek(-1, os.SEEK_END), file.read(1))[1] != b"\n":
                file.write(b"\n")
            file.write(json.dumps(asdict(vote), ensure_ascii=False).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise OSError(
            error.errno, f"the vote on {vote.item!r} was not saved to {shown(path)}: {error.strerror or error}"
        ) from error
