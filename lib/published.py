"""The papers' numbers as printed, and what ours says beside them."""

import math
from dataclasses import dataclass
from pathlib import Path

import yaml

from lib.paths import PARAMS

NOT_RUN = "not run"


@dataclass(frozen=True)
class Published:
    """A number as printed, with where it stands and how far ours may be from it."""

    printed: str
    value: float
    tolerance: float
    reason: str


def paper_numbers(path: Path | None = None) -> dict:
    """Return the published numbers, as `params/paper_numbers.yaml` holds them."""
    return yaml.safe_load((path or PARAMS / "paper_numbers.yaml").read_text(encoding="utf-8"))


def number(table: str, row: str, column: str) -> Published | None:
    """Return the published number of a cell, or None where the paper prints none (`-`).

    Raises
    ------
    KeyError
        If `params/paper_numbers.yaml` knows no such table, row or column.
    """
    content = paper_numbers()
    try:
        entry = content[table]
        printed = entry["rows"][row][column]
    except KeyError as error:
        raise KeyError(f"params/paper_numbers.yaml has no {table} / {row} / {column}: {error} is missing") from None
    special = entry.get("tolerances", {})
    for name in (row, column):
        if name in special:
            return _published(printed, special[name], entry["tolerances_reason"])
    return _published(printed, entry["tolerance"], entry["tolerance_reason"])


def _published(printed: str, tolerance: float, reason: str) -> Published | None:
    """Parse a number as printed: `-` is none, `23.9k` is 23900."""
    if printed == "-":
        return None
    value = float(printed.removesuffix("k")) * (1000 if printed.endswith("k") else 1)
    return Published(printed, value, float(tolerance), reason)


def verdict(ours: float | None, paper: Published | None, otherwise: str = "") -> str:
    """Return `match`, `differs`, `not run`, `no paper value`, or `otherwise`.

    Parameters
    ----------
    ours : float or None
        In the paper's unit; None where it was not run.
    paper : Published or None
        None where the paper prints no number.
    otherwise : str
        Why ours says nothing about the paper's (`other data`, `other model`): then nothing is claimed against it.
    """
    if ours is None or math.isnan(ours):
        return NOT_RUN
    if otherwise:
        return otherwise
    if paper is None:
        return "no paper value"
    # 1e-9 absorbs the binary fraction of a difference that is exactly the tolerance.
    return "match" if abs(ours - paper.value) <= paper.tolerance + 1e-9 else "differs"
