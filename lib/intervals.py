"""Means over steps with 95% bootstrap intervals that resample whole procedures."""

from collections.abc import Sequence

import numpy as np


def bootstrap_interval(
    values: Sequence[float], groups: Sequence[str], seed: int = 0, resamples: int = 2000
) -> tuple[float, float]:
    """Return the 95% percentile interval of a mean over steps, resampling whole groups (procedures).

    Parameters
    ----------
    values : sequence of float, (steps,)
        One score a step.
    groups : sequence of str, (steps,)
        The procedure of each step: steps of one procedure are not independent.

    Raises
    ------
    ValueError
        If the lengths differ or there are fewer than two groups.
    """
    from scipy.stats import bootstrap

    values = np.asarray(values, dtype=float)
    if len(values) != len(groups):
        raise ValueError(f"{len(values)} values for {len(groups)} groups")
    names, index = np.unique(np.asarray(groups), return_inverse=True)
    if len(names) < 2:
        raise ValueError(f"an interval over procedures needs at least two of them, got {len(names)}")
    sums, counts = np.bincount(index, weights=values), np.bincount(index)
    result = bootstrap(
        (sums, counts), lambda s, n, axis: s.sum(axis=axis) / n.sum(axis=axis), paired=True, vectorized=True,
        n_resamples=resamples, method="percentile", rng=np.random.default_rng(seed),
    )  # fmt: skip
    return float(result.confidence_interval.low), float(result.confidence_interval.high)


def paired_difference(
    ours: Sequence[float], theirs: Sequence[float], groups: Sequence[str], seed: int = 0, resamples: int = 2000
) -> tuple[float, float, float]:
    """Return mean(ours - theirs) over the same steps and its 95% interval, resampling whole procedures.

    Parameters
    ----------
    ours, theirs : sequences of float, (steps,)
        In the same order.
    groups : sequence of str, (steps,)
        The procedure of each step.
    """
    difference = np.subtract(ours, theirs)
    return (float(difference.mean()), *bootstrap_interval(difference, groups, seed, resamples))
