"""Train a model to fill masks, and see whether it reads the other text: rows, held-out accuracy, the blanked text."""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from lib.data.examples import Example
from lib.encoding import Parts, encode
from lib.token_questeval.examples import masked_examples, read_examples
from lib.token_questeval.filling import MAX_TOKENS, Filler
from lib.token_questeval.masking import MASK, SEPARATOR, Masker
from lib.token_questeval.pairs import Pair
from lib.token_questeval.scoring import normalize_answer, squad_exact

MAX_TARGET = 64  # pieces of a masked token; the longest word of the public pairs has 39 of MiniLM's


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


def split_pairs(pairs: Sequence[Pair], held_out: int, seed: int = 0) -> tuple[list[Pair], list[Pair]]:
    """Return pairs to learn from and at least `held_out` others, which share no reference with the first.

    Raises
    ------
    ValueError
        If nothing would be left to learn from.
    """
    sizes = Counter(reference for _, reference in pairs)
    references = list(sizes)
    random.Random(seed).shuffle(references)
    kept: set[str] = set()
    while references and sum(sizes[reference] for reference in kept) < held_out:
        kept.add(references.pop())
    if not references:
        raise ValueError(f"{len(pairs)} pairs, {held_out} of them held out: nothing is left to learn from")
    return [pair for pair in pairs if pair[1] not in kept], [pair for pair in pairs if pair[1] in kept]


def material(
    pairs: Iterable[Pair], form: str = "segments", masks: int = 1, held_out: int = 500, seed: int = 0, window: int = 24
) -> tuple[list[Example], list[Example]]:
    """Return examples to learn from and held-out ones (one mask an order), made from pairs that fit into memory.

    Parameters
    ----------
    held_out : int
        Pairs.
    form, masks, seed, window
        See `masked_examples` and `Masker`.
    """
    masker = Masker("safe", window, limit_sent=0) if form == "segments" else None
    learned, kept = split_pairs(list(pairs), held_out, seed)
    return (
        list(masked_examples(learned, form, seed, masks, masker=masker)),
        list(masked_examples(kept, form, seed, 1, masker=masker)),
    )


def material_of_parts(folder: Path, held_out: int) -> tuple[list[Path], list[Example]]:
    """Return the parts to learn from and examples of the last part, which is held out, as released: 2,000 of it.

    Raises
    ------
    ValueError
        If the folder has fewer than two parts.
    """
    parts = sorted(Path(folder).glob("*.part-*"), key=lambda path: int(path.name.rsplit("-", 1)[1]))
    if len(parts) < 2:
        raise ValueError(f"{folder} holds {len(parts)} files *.part-N: write at least two with write_parts")
    return parts[:-1], read_examples(parts[-1])[:held_out]


def updates_for(parts: Sequence[Path], epochs: float, rows_an_update: int) -> int:
    """Return how many updates pass `epochs` times over all parts, whose lines are counted, one example a line."""
    lines = 0
    for part in parts:
        with open(part, "rb") as file:
            lines += sum(1 for _ in file)
    return max(1, int(epochs * lines / rows_an_update))


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
