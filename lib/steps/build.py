"""STEPS rows from any recipes or procedures, as the paper defines them: `build_next_step`, `build_multi_choice`."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

from lib.data.steps import MultiChoice, NextStep

SEPARATOR = " . "  # between steps in the released files


def build_next_step(recipes: Sequence[Sequence[str]], shortest: int = 4, longest: int = 10) -> list[NextStep]:
    """Return a row for every j from 2 to N - 1 and every candidate from step j on: step j is Yes, later ones No.

    Parameters
    ----------
    recipes : sequence of sequences of str
        The steps of each, in order; a full stop at a step's end is dropped, since the format sets its own.
    shortest, longest : int
        Recipes with fewer or more steps are left out (the paper: under 4 or over 10).

    Returns
    -------
    list of NextStep
        `line` counts from 1, as in a file. With N steps, N - 2 rows are Yes and (N - 2)(N - 1) / 2 are No.

    Raises
    ------
    ValueError
        If a step is empty: names recipe and step, from 1.
    """
    rows = []
    for steps in _kept(recipes, shortest, longest):
        for place in range(1, len(steps) - 1):
            previous = SEPARATOR.join(steps[:place])
            rows += [(previous, candidate, at == 0) for at, candidate in enumerate(steps[place:])]
    return [NextStep(*row, line) for line, row in enumerate(rows, start=1)]


def build_multi_choice(
    recipes: Sequence[Sequence[str]], seed: int = 0, shortest: int = 4, longest: int = 10
) -> list[MultiChoice]:
    """Return a row for every j from 2 to N - 1: step j, which is right, beside one of the later steps.

    Parameters
    ----------
    recipes, shortest, longest
        See `build_next_step`.
    seed : int
        Of the choice among the later steps.

    Returns
    -------
    list of MultiChoice
        The right option stands first, as in the released file: see `shuffled`. A later step with the same
        text is no wrong option; a place where all of them are the same has no row.
    """
    draw = random.Random(seed)
    rows = []
    for steps in _kept(recipes, shortest, longest):
        for place in range(1, len(steps) - 1):
            wrong = [step for step in steps[place + 1 :] if step != steps[place]]
            if wrong:
                rows.append((SEPARATOR.join(steps[:place]) + " .", (steps[place], draw.choice(wrong)), 0))
    return [MultiChoice(*row, line) for line, row in enumerate(rows, start=1)]


def shuffled(rows: Sequence[MultiChoice], seed: int = 0) -> list[MultiChoice]:
    """Return the rows with their options in random order, `answer` following; rows keep their places and lines."""
    draw = random.Random(seed)
    turned = [draw.random() < 0.5 for _ in rows]
    return [
        replace(row, options=row.options[::-1], answer=1 - row.answer) if turn else row
        for row, turn in zip(rows, turned, strict=True)
    ]


def _kept(recipes: Sequence[Sequence[str]], shortest: int, longest: int) -> Iterator[list[str]]:
    """Yield the steps of the recipes that are neither too short nor too long."""
    for number, recipe in enumerate(recipes, start=1):
        steps = [" ".join(step.split()).removesuffix(".").rstrip() for step in recipe]
        if "" in steps:
            raise ValueError(f"recipe {number}, step {steps.index('') + 1} is empty: drop it, or the recipe")
        if shortest <= len(steps) <= longest:
            yield steps
