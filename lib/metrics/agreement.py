"""BCubed: how well one partition of a step's sentences agrees with another (Amigo et al., 2009)."""

from collections.abc import Sequence

import numpy as np

from lib.metrics.f1 import Scores
from lib.provenance import signature


def bcubed(predicted: Sequence[int] | Sequence[Sequence[int]], gold: Sequence[int] | Sequence[Sequence[int]]) -> Scores:
    """Return BCubed precision, recall and F1, pooled over all sentences.

    Parameters
    ----------
    predicted, gold : sequence of int, or sequence of sequences of int
        Labels of one step, or of several; sentences of different steps never share a cluster.

    Returns
    -------
    Scores
        In [0, 1]. `precision` and `recall` are means over sentences and `f1` is their harmonic mean. `per_step`
        holds the three per step; its mean over steps is what the OpenPI-C paper seems to print, whose F1 is not
        the harmonic mean of its precision and recall. A step without sentences is left out of both.

    Raises
    ------
    ValueError
        If lengths differ or there is no sentence.

    Examples
    --------
    >>> scores = bcubed([0, 0, 1], [0, 0, 0])
    >>> round(scores.precision, 3), round(scores.recall, 3)
    (1.0, 0.556)
    """
    predicted, gold = _as_steps(predicted), _as_steps(gold)
    if len(predicted) != len(gold):
        raise ValueError(f"{len(predicted)} steps predicted, {len(gold)} in the gold labels")
    rows = []
    for index, (p, g) in enumerate(zip(predicted, gold, strict=True)):
        if len(p) != len(g):
            raise ValueError(f"step {index}: {len(p)} predicted labels, {len(g)} gold labels")
        if len(p):
            rows.append(_sentence_scores(np.asarray(p), np.asarray(g)))
    if not rows:
        raise ValueError("nothing to score: there is no sentence")
    precision, recall = np.concatenate(rows, axis=1).mean(axis=1)
    per_step = [(p, r, _harmonic(p, r)) for p, r in (row.mean(axis=1) for row in rows)]
    name = signature("bcubed", steps=len(rows), n=sum(row.shape[1] for row in rows))
    return Scores(float(precision), float(recall), _harmonic(precision, recall), np.array(per_step), (), name)


def _sentence_scores(predicted: np.ndarray, gold: np.ndarray) -> np.ndarray:
    """Return every sentence's precision and recall within its step, (2, n)."""
    same_predicted = predicted[:, None] == predicted[None, :]
    same_gold = gold[:, None] == gold[None, :]
    both = (same_predicted & same_gold).sum(axis=1)
    return np.stack([both / same_predicted.sum(axis=1), both / same_gold.sum(axis=1)])


def _harmonic(precision: float, recall: float) -> float:
    """Return the harmonic mean of two numbers above 0."""
    return float(2 * precision * recall / (precision + recall))


def _as_steps(labels: Sequence) -> list[Sequence[int]]:
    """Wrap the labels of a single step."""
    labels = list(labels)
    return [labels] if labels and np.isscalar(labels[0]) else labels
