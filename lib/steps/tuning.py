"""Training text for the Yes-or-No question: as many Yes as No rows, joined and cut into segments of one length."""

import random
from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from lib.data.steps import NextStep
from lib.encoding import pack
from lib.steps.prompts import demonstrated


def balanced(rows: Sequence[NextStep], seed: int = 0) -> list[NextStep]:
    """Return all rows in a random order, those of the rarer label repeated until there are as many as of the other.

    Every row of the rarer label is repeated equally often, give or take one.

    Raises
    ------
    ValueError
        If a label is absent.
    """
    draw = random.Random(seed)
    by_label = [[row for row in rows if row.label == label] for label in (True, False)]
    rare, common = sorted(by_label, key=len)
    if not rare:
        raise ValueError(f"{len(rows)} rows, all with the same label: both Yes and No are needed")
    times, rest = divmod(len(common), len(rare))
    made = [*common, *rare * times, *draw.sample(rare, rest)]
    draw.shuffle(made)
    return made


def segments(
    tokenizer: PreTrainedTokenizerBase, rows: Sequence[NextStep], length: int, seed: int = 0
) -> tuple[list[dict], int]:
    """Return rows of `length` tokens for `lib.training.fit`, cut from all balanced questions with their answers.

    Parameters
    ----------
    length : int
        Tokens a segment; the paper has 1024. A question may be cut in two, as there; what is left at the end is
        dropped. The loss is on every token.

    Returns
    -------
    rows : list of dict
    questions : int
        How many were joined.

    Raises
    ------
    ValueError
        If everything together is shorter than one segment.
    """
    kept = balanced(rows, seed)
    ids = tokenizer([demonstrated([row]) for row in kept], add_special_tokens=False).input_ids
    made = pack(ids, length)
    if not made:
        raise ValueError(f"{len(kept)} questions have {sum(map(len, ids))} tokens, a segment needs {length}")
    return made, len(kept)
