"""What the metric's scores are made of.

How a filled word is compared with the masked one (SQuAD's F1 and exact match, Rajpurkar et al., 2016), what came of
masking one text (`Direction`), and which pairs of texts can be scored.
"""

import math
import re
import string
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize_answer(text: str) -> str:
    """Return the text in lower case, without ASCII punctuation and English articles, white space folded.

    Examples
    --------
    >>> normalize_answer("The  U.S."), normalize_answer("the"), normalize_answer("3.5")
    ('us', '', '35')
    """
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text.lower().translate(_PUNCTUATION)).split())


def squad_f1(prediction: str, truth: str) -> float:
    """Return the F1 of the words of two texts, in [0, 1].

    Where one of them normalises to nothing, 1 if both do and 0 otherwise: a comma filled for a full stop counts.

    Examples
    --------
    >>> squad_f1("a", "the"), squad_f1("not", "n't"), squad_f1("red cat", "cat")
    (1.0, 0.0, 0.6666666666666666)
    """
    predicted, true = normalize_answer(prediction).split(), normalize_answer(truth).split()
    if not predicted or not true:
        return float(predicted == true)
    same = sum((Counter(predicted) & Counter(true)).values())
    return 2 * same / (len(predicted) + len(true))


def squad_exact(prediction: str, truth: str) -> float:
    """Return 1 if both texts are the same after `normalize_answer`, else 0."""
    return float(normalize_answer(prediction) == normalize_answer(truth))


@dataclass(frozen=True)
class Direction:
    """What came of masking one text: `scores` is (tokens, scores) in [0, 1], `counted` (tokens,) bool.

    A token that normalises to nothing (punctuation, an article) is not counted: see `squad_f1`.
    """

    name: str
    tokens: list[str]
    tags: list[str]
    answers: list[str]
    scores: np.ndarray
    counted: np.ndarray
    cut: np.ndarray


def checked_pairs(hypothesis: Sequence[str], sources: Sequence[str | Sequence[str]]) -> list[tuple[str, list[str]]]:
    """Return pairs of a hypothesis and its references.

    Raises
    ------
    TypeError
        If one of them is a single string.
    ValueError
        If the lengths differ, there is no pair, or something else than a text stands in one.
    """
    if isinstance(hypothesis, str) or isinstance(sources, str):
        raise TypeError("hypothesis and sources are lists of texts, one pair a place: got a single string")
    if len(hypothesis) != len(sources):
        raise ValueError(f"{len(hypothesis)} hypotheses, {len(sources)} sources: give one source a hypothesis")
    if not len(hypothesis):
        raise ValueError("nothing to score: hypothesis and sources are empty")
    pairs = []
    for index, (text, source) in enumerate(zip(hypothesis, sources, strict=True)):
        references = [source] if isinstance(source, str) else source
        lists = isinstance(references, list | tuple) and len(references)
        if not isinstance(text, str) or not lists or not all(isinstance(reference, str) for reference in references):
            raise ValueError(f"pair {index}: expected texts, got {text!r:.60} and {source!r:.60}")
        pairs.append((text, list(references)))
    return pairs


def chosen(name: str, given: Sequence[str], known: Collection[str]) -> tuple[str, ...]:
    """Return what was asked for, or say what is unknown."""
    if isinstance(given, str) or not given or any(item not in known for item in given):
        raise ValueError(f"{name}={given!r}: expected a tuple of one or more of {', '.join(known)}")
    return tuple(given)


def defined_mean(values: Sequence[float]) -> float:
    """Return the mean of what is not NaN, or NaN."""
    values = np.asarray(values, dtype=float)
    values = values[~np.isnan(values)]
    return float(values.mean()) if len(values) else math.nan
