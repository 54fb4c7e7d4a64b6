"""Agreement with people: coefficients, levels, better-or-worse pairs."""

import math

import numpy as np
import pytest

from lib.metrics.correlation import correlate, darr_interval, darr_kendall, grouped, grouped_interval


def test_tied_ranks_are_averaged():
    assert correlate([1, 2, 2, 4], [1, 2, 3, 4], "spearman").coefficient == pytest.approx(0.9487, abs=1e-4)
    assert correlate([1, 2, 3], [2, 4, 6], "pearson").coefficient == pytest.approx(1)
    assert correlate([1, 2, 3, 4], [1, 2, 4, 3], "kendall").coefficient == pytest.approx(2 / 3)


def test_a_constant_score_has_no_correlation_and_a_reason():
    found = correlate([1, 1, 1, 1], [1, 2, 3, 4])
    assert math.isnan(found.coefficient)
    assert (found.n, found.reason) == (4, "the metric is constant")
    assert correlate([1, 2], [3, 3]).reason == "the human score is constant"
    assert correlate([1], [3]).reason == correlate([], []).reason == "fewer than two pairs"


def test_a_missing_pair_is_left_out_and_counted():
    found = correlate([1, None, 2, 3], [1, 5, 2, 3])
    assert (found.coefficient, found.n, found.dropped) == (pytest.approx(1), 3, 1)


def test_wrong_input_is_named():
    with pytest.raises(ValueError, match="2 scores of the metric, 1 of people"):
        correlate([1, 2], [1])
    with pytest.raises(ValueError, match="method='tau'"):
        correlate([1, 2], [1, 2], "tau")
    with pytest.raises(ValueError, match=r"\(2, 2\), human \(2, 3\)"):
        grouped(np.zeros((2, 2)), np.zeros((2, 3)))
    with pytest.raises(ValueError, match="level='corpus'"):
        grouped(np.zeros((2, 2)), np.zeros((2, 2)), level="corpus")
    with pytest.raises(ValueError, match="1 scores of better, 2 of worse"):
        darr_kendall([1], [1, 2])


def test_the_two_levels_can_have_opposite_signs():
    """Within each text more is worse; but the system that is better in the mean scores higher in the mean."""
    human = np.array([[1.0, 2.0], [2.0, 3.0], [9.0, 0.0]])
    metric = np.array([[2.0, 1.0], [3.0, 2.0], [9.0, 0.0]])
    per_text = grouped(metric[:2], human[:2], "pearson", "summary")
    assert (per_text.coefficient, per_text.n) == (-1, 2)
    assert grouped(metric, human, "pearson", "system").coefficient == pytest.approx(1)
    assert grouped(metric, human, "pearson", "summary").coefficient == pytest.approx(-1 / 3)


def test_texts_without_a_correlation_are_counted():
    found = grouped([[1, 1], [1, 2]], [[1, 2], [1, 2]], "kendall")
    assert (found.coefficient, found.n, found.dropped) == (1, 1, 1)
    none = grouped([[1, 1]], [[1, 2]])
    assert math.isnan(none.coefficient)
    assert none.reason


@pytest.mark.parametrize("level", ["summary", "system"])
def test_the_interval_holds_the_coefficient_and_is_the_same_twice(level):
    draw = np.random.default_rng(0)
    human = draw.normal(size=(30, 6))
    metric = human + draw.normal(size=(30, 6))
    low, high = grouped_interval(metric, human, "spearman", level, seed=1, resamples=200)
    assert low <= grouped(metric, human, "spearman", level).coefficient <= high
    assert (low, high) == grouped_interval(metric, human, "spearman", level, seed=1, resamples=200)
    assert all(map(math.isnan, grouped_interval(np.ones((3, 2)), human[:3, :2], "spearman", level)))


def test_a_tie_is_wrong_for_better_or_worse_pairs():
    assert darr_kendall([3, 2, 1, 1], [1, 1, 1, 2]) == 0
    assert darr_kendall([2, 2], [1, 1]) == 1
    assert darr_kendall([1, 1], [1, 1]) == -1
    low, high = darr_interval([3, 2, 1, 1], [1, 1, 1, 2], ["a", "a", "b", "b"])
    assert -1 <= low <= 0 <= high <= 1
