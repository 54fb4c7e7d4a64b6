"""Train a model to fill masks, and see whether it reads the other text: rows, held-out accuracy, the blanked text."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from lib.data.examples import Example
from lib.token_questeval.examples import read_examples
from lib.token_questeval.filling import MAX_TOKENS, Filler
from lib.token_questeval.masking import MASK, SEPARATOR
from lib.token_questeval.scoring import normalize_answer, squad_exact
from lib.training import Parts, encode

MAX_TARGET = 32  # pieces of a masked token; no token of the public pairs has more than a dozen


@dataclass(frozen=True)
class FillAccuracy:
    """Share of held-out masks filled right (SQuAD's exact match), in [0, 1].

    `content` is the share among tokens that do not normalise to nothing, `blanked` and `blanked_content` the same with
    the other text left away, `majority_content` what always saying the commonest training answer gets.
    """

    n: int
    exact: float
    content: float
    blanked: float
    blanked_content: float
    majority_content: float


def rows(tokenizer: PreTrainedTokenizerBase, examples: Sequence[Example], max_input: int = MAX_TOKENS) -> list[dict]:
    """Return rows for `lib.training.fit`; inputs are cut from the right once `prepare` has seen the tokenizer."""
    return encode(tokenizer, examples, max_input, MAX_TARGET)


def streamed(tokenizer: PreTrainedTokenizerBase, parts: Sequence[Path], max_input: int = MAX_TOKENS) -> Parts:
    """Return a data set over parts of which one is in memory at a time; a resumed training finds its part again."""
    return Parts(parts, lambda part: rows(tokenizer, read_examples(part), max_input))


def split(examples: Sequence[Example], held_out: int) -> tuple[list[Example], list[Example]]:
    """Return examples to learn from and held-out ones: the last `held_out`, and nothing of their pairs in the first.

    Raises
    ------
    ValueError
        If nothing would be left to learn from.
    """
    kept = list(examples[-held_out:])
    pairs = {example.id.rsplit(":", 2)[0] for example in kept}
    learned = [example for example in examples[:-held_out] if example.id.rsplit(":", 2)[0] not in pairs]
    if not learned:
        raise ValueError(f"{len(examples)} examples, {held_out} held out: nothing is left to learn from")
    return learned, kept


def accuracy_scorer(
    tokenizer: PreTrainedTokenizerBase, examples: Sequence[Example], batch_size: int
) -> Callable[[PreTrainedModel], float]:
    """Return a function from a model to its share of right fillings among tokens that normalise to something."""
    content = [example for example in examples if normalize_answer(example.target)]

    def score(model: PreTrainedModel) -> float:
        return float(np.mean(_right(Filler(model, tokenizer, batch_size=batch_size, progress=False), content)))

    return score


def fill_accuracy(filler: Filler, held_out: Sequence[Example], learned: Sequence[Example]) -> FillAccuracy:
    """Return how often a model fills held-out masks right, with the other text and without it."""
    content = np.array([bool(normalize_answer(example.target)) for example in held_out])
    right, right_blank = _right(filler, held_out), _right(filler, list(map(blanked, held_out)))
    commonest = Counter(normalize_answer(example.target) for example in learned if normalize_answer(example.target))
    majority = commonest.most_common(1)[0][0]
    return FillAccuracy(
        n=len(held_out),
        exact=float(right.mean()),
        content=float(right[content].mean()),
        blanked=float(right_blank.mean()),
        blanked_content=float(right_blank[content].mean()),
        majority_content=float(
            np.mean([normalize_answer(e.target) == majority for e, c in zip(held_out, content, strict=True) if c])
        ),
    )


def blanked(example: Example) -> Example:
    """Return an example without the text that is not masked.

    Examples
    --------
    >>> blanked(Example("0", "It <mask> <sep> It jumps", "jumps")).prompt
    'It <mask> <sep> '
    """
    first, _, second = example.prompt.partition(f" {SEPARATOR} ")
    sides = (first, "") if MASK in first else ("", second)
    return Example(example.id, f" {SEPARATOR} ".join(sides), example.target)


def _right(filler: Filler, examples: Sequence[Example]) -> np.ndarray:
    """Return whether each mask is filled right, (examples,)."""
    sides = [example.prompt.partition(f" {SEPARATOR} ") for example in examples]
    filled = filler.fill([(segment, other, ()) for segment, _, other in sides])
    return np.array([squad_exact(f.answer, e.target) for f, e in zip(filled, examples, strict=True)])
