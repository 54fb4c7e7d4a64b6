"""How well a metric agrees with people: correlation by summary and by system, and better-or-worse pairs.

All coefficients are for scores where higher is better on both sides.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from lib.intervals import bootstrap_interval

METHODS = {"pearson": stats.pearsonr, "spearman": stats.spearmanr, "kendall": stats.kendalltau}  # Kendall: tau-b
LEVELS = ("summary", "system")


@dataclass(frozen=True)
class Correlation:
    """A coefficient and what it rests on.

    Attributes
    ----------
    coefficient : float
        In [-1, 1], or NaN with a `reason`.
    n : int
        Pairs of scores; for a mean over groups, the groups that have a coefficient.
    dropped : int
        Pairs where one side is missing; for a mean over groups, the groups without a coefficient.
    reason : str
        Why there is no coefficient.
    """

    coefficient: float
    n: int
    dropped: int
    reason: str = ""


def correlate(metric: Sequence[float], human: Sequence[float], method: str = "spearman") -> Correlation:
    """Return the correlation of two lists of scores; ties have their average rank, missing pairs are left out.

    Parameters
    ----------
    metric, human : sequences of float or None, (n,)
        None and NaN are missing.
    method : str
        `pearson`, `spearman` or `kendall` (tau-b).

    Raises
    ------
    ValueError
        If the lengths differ, or the method is unknown.

    Examples
    --------
    >>> round(correlate([1, 2, 2, 4], [1, 2, 3, 4]).coefficient, 4)
    0.9487
    >>> correlate([1, 1, 1], [1, 2, 3]).reason
    'the metric is constant'
    """
    if method not in METHODS:
        raise ValueError(f"method={method!r}: expected one of {', '.join(METHODS)}")
    if len(metric) != len(human):
        raise ValueError(f"{len(metric)} scores of the metric, {len(human)} of people")
    x, y = np.array(metric, dtype=float), np.array(human, dtype=float)
    live = ~(np.isnan(x) | np.isnan(y))
    x, y, dropped = x[live], y[live], int((~live).sum())
    for reason, holds in (
        ("fewer than two pairs", len(x) < 2),
        ("the metric is constant", len(x) and np.all(x == x[0])),
        ("the human score is constant", len(y) and np.all(y == y[0])),
    ):
        if holds:
            return Correlation(math.nan, len(x), dropped, reason)
    return Correlation(float(METHODS[method](x, y).statistic), len(x), dropped)


def grouped(metric: np.ndarray, human: np.ndarray, method: str = "spearman", level: str = "summary") -> Correlation:
    """Return the correlation over a table of texts by systems.

    Parameters
    ----------
    metric, human : array (texts, systems)
    level : str
        `summary`: the mean over texts of the correlation across systems, texts without one left out and counted.
        `system`: the correlation of the systems' means over texts. The two can have opposite signs.

    Raises
    ------
    ValueError
        If the shapes differ, or the level is unknown.
    """
    metric, human = np.asarray(metric, dtype=float), np.asarray(human, dtype=float)
    if metric.shape != human.shape or metric.ndim != 2:
        raise ValueError(f"metric {metric.shape}, human {human.shape}: expected the same (texts, systems)")
    if level == "system":
        return correlate(metric.mean(axis=0), human.mean(axis=0), method)
    if level != "summary":
        raise ValueError(f"level={level!r}: expected one of {', '.join(LEVELS)}")
    each = [correlate(m, h, method).coefficient for m, h in zip(metric, human, strict=True)]
    defined = [value for value in each if not math.isnan(value)]
    if not defined:
        return Correlation(math.nan, 0, len(each), "no text has a correlation: every one is constant on a side")
    return Correlation(float(np.mean(defined)), len(defined), len(each) - len(defined))


def grouped_interval(
    metric: np.ndarray, human: np.ndarray, method: str, level: str, seed: int = 0, resamples: int = 1000
) -> tuple[float, float]:
    """Return the 95% percentile interval of `grouped`, resampling texts; NaN where it is not defined."""
    metric, human = np.asarray(metric, dtype=float), np.asarray(human, dtype=float)
    draw = np.random.default_rng(seed)
    picks = draw.integers(len(metric), size=(resamples, len(metric)))
    if level == "summary":
        # A text's own coefficient does not change when texts are resampled.
        each = np.array([correlate(m, h, method).coefficient for m, h in zip(metric, human, strict=True)])
        values = np.array([np.nanmean(each[pick]) if not np.isnan(each[pick]).all() else np.nan for pick in picks])
    else:
        values = np.array([grouped(metric[pick], human[pick], method, level).coefficient for pick in picks])
    values = values[~np.isnan(values)]
    return tuple(np.percentile(values, [2.5, 97.5]).tolist()) if len(values) else (math.nan, math.nan)


def darr_kendall(better: Sequence[float], worse: Sequence[float]) -> float:
    """Return the Kendall-like tau of the WMT metrics task on pairs that people ranked: (right - wrong) / all.

    A tie of the metric counts as wrong, as in WMT19 (Ma et al., 2019). In [-1, 1].

    Examples
    --------
    >>> darr_kendall([3, 2, 1, 1], [1, 1, 1, 2])
    0.0
    """
    if len(better) != len(worse) or not len(better):
        raise ValueError(
            f"{len(better)} scores of better, {len(worse)} of worse translations: expected as many, and some"
        )
    right = np.asarray(better, dtype=float) > np.asarray(worse, dtype=float)
    return float(2 * right.mean() - 1)


def darr_interval(
    better: Sequence[float], worse: Sequence[float], groups: Sequence[str], seed: int = 0, resamples: int = 2000
) -> tuple[float, float]:
    """Return the 95% interval of `darr_kendall`, resampling whole groups (references)."""
    right = np.asarray(better, dtype=float) > np.asarray(worse, dtype=float)
    return bootstrap_interval(2.0 * right - 1, groups, seed, resamples)
