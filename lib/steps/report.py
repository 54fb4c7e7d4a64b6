"""What predictions on STEPS are worth: by class, in pairs, and for choices with ties."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lib.data.steps import NextStep


@dataclass(frozen=True)
class ClassificationReport:
    """How well Yes and No are told apart, in [0, 1]; NaN where a class is absent.

    Attributes
    ----------
    sensitivity, specificity : float
        Accuracy on Yes and on No rows.
    g_mean : float
        Their geometric mean, the paper's headline.
    accuracy : float
    yes_rate : float
        Share of rows that were answered Yes.
    """

    sensitivity: float
    specificity: float
    g_mean: float
    accuracy: float
    yes_rate: float


def classification_report(
    labels: Sequence[bool], predictions: Sequence[bool], warn: bool = True
) -> ClassificationReport:
    """Return sensitivity, specificity, their geometric mean, accuracy and the share of Yes.

    A model that gives one answer to everything is warned about, unless `warn` is false: its accuracy may look fine.
    """
    gold, said = np.asarray(labels, dtype=bool), np.asarray(predictions, dtype=bool)
    if gold.shape != said.shape or gold.size == 0:
        raise ValueError(f"{gold.size} labels and {said.size} predictions: give one each, at least one")
    if warn and said.size > 1 and said.all() | ~said.any():
        warnings.warn(f"every answer is {'Yes' if said[0] else 'No'}", stacklevel=2)
    sensitivity = float(said[gold].mean()) if gold.any() else float("nan")
    specificity = float((~said[~gold]).mean()) if (~gold).any() else float("nan")
    return ClassificationReport(
        sensitivity,
        specificity,
        float(np.sqrt(sensitivity * specificity)),
        float((gold == said).mean()),
        float(said.mean()),
    )


def paired_accuracy(rows: Sequence[NextStep], predictions: Sequence[bool]) -> float:
    """Return the share of contexts of which every row is answered right, in [0, 1]."""
    right: dict[str, bool] = {}
    for row, said in zip(rows, predictions, strict=True):
        right[row.previous] = right.get(row.previous, True) and bool(said) == row.label
    return float(np.mean(list(right.values())))


def choice_accuracy(scores: np.ndarray, answers: Sequence[int]) -> float:
    """Return the accuracy of the higher score, in [0, 1]; see `points`."""
    return float(points(scores, answers).mean())


def points(scores: np.ndarray, answers: Sequence[int]) -> np.ndarray:
    """Return 1 for each row whose right option scores higher, 0 where the other does; a tie counts one half.

    Parameters
    ----------
    scores : (rows, 2) array
        Higher is better.
    answers : sequence of int, (rows,)
        Place of the right option.

    Raises
    ------
    ValueError
        If a score is NaN, naming the row from 1, or the shapes do not fit.
    """
    scores, places = np.asarray(scores, dtype=float), np.asarray(answers)
    if scores.shape != (len(places), 2) or not len(places):
        raise ValueError(f"scores have the shape {scores.shape} for {len(places)} answers: expected (rows, 2)")
    if np.isnan(scores).any():
        raise ValueError(f"row {int(np.isnan(scores).any(axis=1).argmax()) + 1} has a score that is NaN")
    rows = np.arange(len(places))
    difference = scores[rows, places] - scores[rows, 1 - places]
    return np.where(difference > 0, 1.0, np.where(difference == 0, 0.5, 0.0))
