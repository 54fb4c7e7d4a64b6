"""The paper's question about a next step, and the demonstrations before it."""

import random
from collections.abc import Collection, Sequence

from lib.data.steps import NextStep

ANSWERS = (" Yes", " No")  # with the space that continues the question: `Yes` and ` Yes` are other tokens
#: Between demonstrations; the paper gives no separator.
GAP = "\n\n"
#: Asks nothing: what a model answers to it is its taste for Yes (Zhao et al., 2021).
CONTENT_FREE = ("N/A", "N/A")


def question(previous: str, candidate: str) -> str:
    """Return the paper's template, word for word.

    Examples
    --------
    >>> question("Boil the water", "Add the tea")
    'Boil the water . Is the next step of Add the tea a reasonable step in this recipe ?'
    """
    return f"{previous} . Is the next step of {candidate} a reasonable step in this recipe ?"


def next_step_prompt(row: NextStep) -> str:
    """Return a row's question."""
    return question(row.previous, row.candidate)


def demonstrated(rows: Sequence[NextStep]) -> str:
    """Return demonstrations as the text that stands before a question; empty for none."""
    return "".join(f"{next_step_prompt(row)}{ANSWERS[0] if row.label else ANSWERS[1]}{GAP}" for row in rows)


def demonstrations(
    pool: Sequence[NextStep], number: int, seed: int, asked: Collection[NextStep] = ()
) -> list[NextStep]:
    """Return demonstrations for one seed: half Yes and half No, in a random order; a single one alternates by seed.

    They depend on pool, number and seed alone, whatever was drawn before; the pool stays as it is.

    Parameters
    ----------
    pool : sequence of NextStep
        Training rows.
    number : int
        0, 1, or an even number; the paper has 0, 1 and 4.
    seed : int
        An even one gives a single demonstration the label Yes, an odd one No.
    asked : collection of NextStep
        The rows that will be asked about: recipes that begin like one of them give no demonstration.

    Raises
    ------
    ValueError
        If the number is odd and not 1, or there are too few rows of a label.
    """
    if number > 1 and number % 2:
        raise ValueError(f"{number} demonstrations cannot be balanced: take 0, 1 or an even number")
    met = {_first_step(row) for row in asked}
    draw = random.Random(f"{seed}/{number}")
    wanted = {True: number // 2, False: number // 2} if number != 1 else {seed % 2 == 0: 1}
    chosen = []
    for label, count in wanted.items():
        some = [row for row in pool if row.label == label and _first_step(row) not in met]
        if len(some) < count:
            raise ValueError(f"{len(some)} rows with the label {'Yes' if label else 'No'}, {count} are needed")
        chosen += draw.sample(some, count)
    draw.shuffle(chosen)
    return chosen


def _first_step(row: NextStep) -> str:
    """Return the first step of a row's recipe."""
    return row.previous.split(" . ", 1)[0].strip()
