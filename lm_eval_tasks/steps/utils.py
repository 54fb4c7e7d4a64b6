"""Data of both STEPS tasks for lm-evaluation-harness: the released files, from the folder that OPENPI_DATA names.

It imports nothing of this project, so that the harness can live in an environment of its own.
"""

import os
import random
from pathlib import Path

from datasets import Dataset


def multi_choice(**_: object) -> dict[str, Dataset]:
    """Return the choices; the released file has the right option first, here options are shuffled (seed 0)."""
    draw, rows = random.Random(0), []
    for previous, right, wrong in _fields("multi-choice"):
        answer = int(draw.random() < 0.5)
        options = [wrong, right] if answer else [right, wrong]
        rows.append({"previous": previous, "options": options, "answer": answer})
    return {"test": Dataset.from_list(rows)}


def next_step(**_: object) -> dict[str, Dataset]:
    """Return the questions; `answer` is 0 for Yes and 1 for No."""
    labels = {"Yes": 0, "No": 1}
    rows = [{"previous": a, "candidate": b, "answer": labels[c]} for a, b, c in _fields("next_step")]
    return {"test": Dataset.from_list(rows)}


def _fields(task: str) -> list[list[str]]:
    """Return the three fields of every row: tab-separated, no header, no quotes; white space at their ends dropped."""
    path = Path(os.environ["OPENPI_DATA"]) / "steps" / task / "test.txt"
    with open(path, encoding="utf-8", newline="\n") as file:
        rows = [[field.strip() for field in line.rstrip("\n").split("\t")] for line in file]
    if wrong := [number for number, row in enumerate(rows, start=1) if len(row) != 3 or not all(row)]:
        raise ValueError(f"{path}, line {wrong[0]}: expected 3 non-empty fields")
    return rows
