"""The released STEPS files: literal tab-separated text without header, quotes or missing values."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lib.data.registry import fetch


@dataclass(frozen=True)
class NextStep:
    """Is the candidate the next step? `line` is the row in the file, from 1."""

    previous: str
    candidate: str
    label: bool
    line: int


@dataclass(frozen=True)
class MultiChoice:
    """Which option is the next step? In the released file `answer` is always 0: shuffle before scoring."""

    previous: str
    options: tuple[str, str]
    answer: int
    line: int


def load_steps(task: str, split: str = "test", root: Path | None = None) -> list[NextStep] | list[MultiChoice]:
    """Return the rows of a released STEPS file.

    Parameters
    ----------
    task : {"next_step", "multi_choice"}
    split : str
        `test`; from a folder of yours also its `train` or `dev`, which no copy with a known hash exists of.
    root : Path, optional
        A folder laid out like the data cache, without hash checks. Default: the public data.

    Returns
    -------
    list of NextStep or MultiChoice
        White space at the ends of a field is dropped (the multi-choice contexts end in a blank, the others do not);
        nothing else is changed.

    Raises
    ------
    ValueError
        If a row has not three non-empty fields or the label is not Yes or No: names file and line.
    """
    folders = {"next_step": "next_step", "multi_choice": "multi-choice"}
    if task not in folders or (split != "test" and root is None):
        raise ValueError(f"task={task!r}, split={split!r}: expected next_step or multi_choice, and test")
    name = f"steps/{folders[task]}/{split}.txt"
    path = fetch(name) if root is None else Path(root) / name
    if task == "multi_choice":
        return [MultiChoice(a, (b, c), 0, line) for line, (a, b, c) in _rows(path)]
    return [NextStep(a, b, _label(path, line, c), line) for line, (a, b, c) in _rows(path)]


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield (line, three fields)."""
    if path.stat().st_size == 0:
        raise ValueError(f"{path} is empty (0 bytes): fetch it again")
    # newline="\n": a lone carriage return inside a field is part of it.
    with open(path, encoding="utf-8", newline="\n") as file:
        for number, line in enumerate(file, start=1):
            fields = [field.strip() for field in line.rstrip("\n").split("\t")]
            if len(fields) != 3 or not all(fields):
                raise ValueError(
                    f"{path}, line {number}: {len(fields)} fields ({line[:60]!r}...), expected 3 non-empty"
                )
            yield number, fields


def _label(path: Path, line: int, text: str) -> bool:
    """Return the label of a row."""
    if text not in {"Yes", "No"}:
        raise ValueError(f"{path}, line {line}: label {text!r}, expected Yes or No")
    return text == "Yes"
