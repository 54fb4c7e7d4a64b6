"""Match of a gold and a predicted sentence: exact, BLEU-2 or ROUGE-L after normalising and stemming.

`match_matrix` is what the scores are built on; everything here works on whole steps at once and normalises each
distinct sentence once. Source of the definitions: the released evaluators of OpenPI (Tandon et al., 2020) and
OpenPI-C, whose numbers the tests reproduce.
"""

import string
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from nltk.stem.porter import PorterStemmer
from rapidfuzz.distance import LCSseq
from rapidfuzz.process import cdist

MATCHES = ("exact", "bleu", "rouge_l")
TEMPLATE_WORDS = frozenset({"and", "was", "is", "before", "afterwards", "after", "of"})
BETA = 1.2  # of ROUGE-L's F: recall weighs more than precision, as in the COCO caption scorer

_PUNCTUATION = str.maketrans("", "", string.punctuation)
# NLTK's default mode gives the released stem on all 7,883 words of the data; the two other modes do not.
_STEMMER = PorterStemmer()
# A word becomes one character of a private plane, so that a sentence is a short string that rapidfuzz compares fast.
_FIRST_CODE = 0xF0000
_LAST_CODE = 0x10FFFF
_codes: dict[str, str] = {}


Match = str | Callable[[Sequence[str], Sequence[str]], np.ndarray]


def match_matrix(gold: Sequence[str], predicted: Sequence[str], match: Match = "rouge_l") -> np.ndarray:
    """Return the match of every gold sentence with every predicted sentence.

    Parameters
    ----------
    gold, predicted : sequence of str
        G and P raw sentences.
    match : {"exact", "bleu", "rouge_l"} or callable
        `exact`: equal stems. `bleu`: BLEU-2 of the COCO caption scorer for one pair, with gold as the reference;
        an identical one-word answer scores 0.001, as published. `rouge_l`: F of the longest common subsequence
        with beta 1.2. A callable of one's own gets `gold` and `predicted` and returns the (G, P) array.

    Returns
    -------
    ndarray, (G, P) float64
        In [0, 1], higher is better. Two sentences without content words match fully, one against none does not.

    Raises
    ------
    ValueError
        If the match is unknown, or a callable's array has another shape or values outside [0, 1].
    """
    if callable(match):
        return _own(gold, predicted, match)
    if match not in MATCHES:
        raise ValueError(f"match={match!r}: expected one of {', '.join(MATCHES)}, or a function")
    gold_codes, predicted_codes = list(map(_encode, gold)), list(map(_encode, predicted))
    if not gold_codes or not predicted_codes:
        return np.zeros((len(gold_codes), len(predicted_codes)))
    scores = {"exact": _exact, "bleu": _bleu2, "rouge_l": _rouge_l}[match](gold_codes, predicted_codes)
    empty_gold = np.array([not code for code in gold_codes])[:, None]
    empty_predicted = np.array([not code for code in predicted_codes])[None, :]
    scores = np.where(empty_gold | empty_predicted, 0.0, scores)
    return np.where(empty_gold & empty_predicted, 1.0, scores)


def name_of(match: Match) -> str:
    """Return how signatures name a match."""
    return getattr(match, "__name__", type(match).__name__) if callable(match) else match


@lru_cache(maxsize=200_000)
def normalize(sentence: str) -> str:
    """Return the stems of a sentence's content words, joined with single spaces.

    Lower case, ASCII punctuation removed, white space folded, template words dropped, each word stemmed.

    Examples
    --------
    >>> normalize("Shape of parsnip was whole before and spiralled into ribbons afterwards.")
    'shape parsnip whole spiral into ribbon'
    """
    words = sentence.lower().translate(_PUNCTUATION).split()
    return " ".join(_stem(word) for word in words if word not in TEMPLATE_WORDS)


@lru_cache(maxsize=100_000)
def _stem(word: str) -> str:
    """Stem one lower-case word."""
    return _STEMMER.stem(word)


@lru_cache(maxsize=200_000)
def _encode(sentence: str) -> str:
    """Return the normalised sentence with one character a word."""
    return "".join(map(_code, normalize(sentence).split()))


def _code(word: str) -> str:
    """Return the character that stands for a word in this process."""
    if word not in _codes:
        if _FIRST_CODE + len(_codes) > _LAST_CODE:
            # Codes only have to agree within one call; cached sentences go with them.
            _codes.clear()
            _encode.cache_clear()
        _codes[word] = chr(_FIRST_CODE + len(_codes))
    return _codes[word]


def _own(gold: Sequence[str], predicted: Sequence[str], match: Callable) -> np.ndarray:
    """Return what a caller's match gives, checked."""
    if not len(gold) or not len(predicted):
        return np.zeros((len(gold), len(predicted)))
    scores = np.asarray(match(list(gold), list(predicted)), dtype=float)
    if scores.shape != (len(gold), len(predicted)) or not ((scores >= 0) & (scores <= 1)).all():
        raise ValueError(
            f"{name_of(match)} returned shape {scores.shape} with values {scores.min():g} to {scores.max():g}; "
            f"expected ({len(gold)}, {len(predicted)}), a row a gold sentence, in [0, 1]"
        )
    return scores


def _exact(gold: list[str], predicted: list[str]) -> np.ndarray:
    """Return 1.0 where the stems are equal, (G, P)."""
    return (np.array(gold)[:, None] == np.array(predicted)[None, :]).astype(float)


def _bleu2(gold: list[str], predicted: list[str]) -> np.ndarray:
    """Return BLEU-2 with the prediction as hypothesis, (G, P)."""
    gold_length = np.array([len(code) for code in gold], dtype=float)[:, None]
    predicted_length = np.array([len(code) for code in predicted], dtype=float)[None, :]
    product = np.ones((len(gold), len(predicted)))
    for n in (1, 2):
        guesses = np.maximum(predicted_length - n + 1, 0)
        product *= (_clipped(gold, predicted, n) + 1e-15) / (guesses + 1e-9)
    ratio = (predicted_length + 1e-15) / (gold_length + 1e-9)
    penalty = np.where(ratio < 1, np.exp(1 - 1 / np.maximum(ratio, 1e-9)), 1.0)
    return np.sqrt(product) * penalty


def _clipped(gold: list[str], predicted: list[str], n: int) -> np.ndarray:
    """Return the number of predicted n-grams found in the gold sentence, each at most as often as there, (G, P)."""
    column: dict[str, int] = {}
    rows = [
        [column.setdefault(code[i : i + n], len(column)) for i in range(len(code) - n + 1)] for code in gold + predicted
    ]
    counts = np.zeros((len(rows), len(column)))
    for row, grams in zip(counts, rows, strict=True):
        np.add.at(row, grams, 1)
    return np.minimum(counts[: len(gold), None, :], counts[None, len(gold) :, :]).sum(axis=2)


def _rouge_l(gold: list[str], predicted: list[str]) -> np.ndarray:
    """Return ROUGE-L's F with beta 1.2, (G, P)."""
    common = cdist(gold, predicted, scorer=LCSseq.similarity, dtype=np.float64)
    recall = common / np.maximum([len(code) for code in gold], 1)[:, None]
    precision = common / np.maximum([len(code) for code in predicted], 1)[None, :]
    total = recall + BETA**2 * precision
    return np.divide((1 + BETA**2) * precision * recall, total, out=np.zeros_like(total), where=total > 0)
