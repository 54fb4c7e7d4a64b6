"""What is asked and what is learned from: the released test files, and the same questions built from procedures."""

from pathlib import Path

from lib import data as datasets
from lib.data.procedures import root_of
from lib.data.steps import MultiChoice, NextStep, load_steps
from lib.steps.build import build_multi_choice, build_next_step

RELEASED, BUILT = "STEPS", "OpenPI-C"


def question_sets(data: str = "public", seed: int = 0) -> dict[str, tuple[list[NextStep], list[MultiChoice]]]:
    """Return the rows of both tasks by set: `STEPS`, as released, and `OpenPI-C`, built from its test procedures.

    Parameters
    ----------
    data : str
        `public`, `sample` or a folder, see `lib.data.load`. The sample has no released STEPS, and a folder need not.
    seed : int
        Of the wrong options of the set that is built.
    """
    root, found = root_of(data), {}
    if root is None or (root / "steps").is_dir():
        found[RELEASED] = (load_steps("next_step", root=root), load_steps("multi_choice", root=root))
    recipes = _recipes("test", data)
    return found | {BUILT: (build_next_step(recipes), build_multi_choice(recipes, seed))}


def learning_rows(split: str, data: str = "public", folder: str = "") -> list[NextStep]:
    """Return `train` or `dev` rows: from a folder with the released files, else built from OpenPI-C's procedures.

    Parameters
    ----------
    folder : str
        Holds `steps/next_step/train.txt` and `dev.txt` as released; empty for rows that are built.
    """
    return load_steps("next_step", split, Path(folder)) if folder else build_next_step(_recipes(split, data))


def _recipes(split: str, data: str) -> list[list[str]]:
    """Return the steps of OpenPI-C's procedures."""
    return [[step.text for step in procedure.steps] for procedure in datasets.load("openpi-c", split, data)]
