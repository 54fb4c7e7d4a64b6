"""`openpi_f1` and `cluster_f1`: statistics per step, then one mean over steps.

Percentages are for printing; every score here is in [0, 1].
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from lib.metrics.clusters import assign, default_clusterer, relabel
from lib.metrics.match import Match, match_matrix, name_of
from lib.provenance import signature
from lib.text import is_no_change

Steps = Sequence[Sequence[str]]
Labels = Sequence[Sequence[int]]


@dataclass(frozen=True)
class Scores:
    """A score with its parts and its signature.

    Attributes
    ----------
    precision, recall, f1 : float
        In [0, 1]; each is the mean over steps, so `f1` is not the harmonic mean of the other two.
    per_step : ndarray, (steps, 3)
        Precision, recall and F1 of every step.
    ids : tuple of str
        The steps' ids, or empty.
    signature : str
        All that moves the number.
    """

    precision: float
    recall: float
    f1: float
    per_step: np.ndarray = field(repr=False)
    ids: tuple[str, ...] = field(repr=False)
    signature: str = ""


def openpi_f1(
    predictions: Steps,
    references: Steps,
    match: Match = "rouge_l",
    deduplicate: bool = True,
    ids: Sequence[str] | None = None,
) -> Scores:
    """Return the original OpenPI score (Tandon et al., 2020): each sentence takes its best match, greedily.

    Parameters
    ----------
    predictions, references : sequence of sequences of str
        One list of sentences a step, in the same order of steps.
    match : {"exact", "bleu", "rouge_l"} or callable
        See `lib.metrics.match.match_matrix`.
    deduplicate : bool
        Take the set of a step's raw predicted sentences first, as today's public script does. The numbers that
        were published with OpenPI were made without it.
    ids : sequence of str, optional
        The steps' ids, kept in the result and named in errors.

    Returns
    -------
    Scores
        Limit cases of a step: nothing predicted and no reference 1/1/1; a prediction without reference 0/1/0; a
        reference without prediction 1/0/0.

    Raises
    ------
    ValueError
        If the lengths differ or there is no step.
    """
    ids = _checked(predictions, references, ids)
    rows = [
        _step_f1(_unique(p) if deduplicate else list(p), list(g), match)
        for p, g in zip(without_no_change(predictions), without_no_change(references), strict=True)
    ]
    name = signature("openpi_f1", match=name_of(match), deduplicate=str(deduplicate).lower(), n=len(rows))
    return _aggregate(rows, ids, name)


def cluster_f1(
    predictions: Steps,
    references: Steps,
    match: Match = "rouge_l",
    prediction_clusters: Labels | None = None,
    reference_clusters: Labels | None = None,
    clusterer: Callable[[Sequence[str]], Sequence[int]] | None = None,
    ids: Sequence[str] | None = None,
) -> Scores:
    """Return the cluster-based score (OpenPI-C paper, sec. 3): clusters are assigned one to one.

    The match of two clusters is the largest match over their pairs of sentences; the assignment maximises the
    sum of matches; precision is that sum by the number of predicted clusters, recall by that of gold clusters.

    Parameters
    ----------
    predictions, references, match, ids
        As in `openpi_f1`; duplicates are always dropped here.
    prediction_clusters, reference_clusters : sequence of sequences of int, optional
        One label a sentence, beside the sentences as given; gaps in the numbering do not matter. Where absent,
        `clusterer` makes them from the sorted set of sentences.
    clusterer : callable, optional
        From the sentences of a step to one label each; default MiniLM at 0.75.

    Raises
    ------
    ValueError
        If lengths differ, naming the step.
    """
    ids = _checked(predictions, references, ids)
    if prediction_clusters is None or reference_clusters is None:
        clusterer = clusterer or default_clusterer()
        prepare = getattr(clusterer, "prepare", None)
        if prepare is not None:
            given = (prediction_clusters is None, predictions), (reference_clusters is None, references)
            prepare([sentence for needed, steps in given if needed for step in steps for sentence in step])
    sides = [
        _labelled(predictions, prediction_clusters, clusterer, ids, "prediction"),
        _labelled(references, reference_clusters, clusterer, ids, "reference"),
    ]
    rows = [_step_cluster_f1(p, g, match) for p, g in zip(*sides, strict=True)]
    # Read after the work: a hub model's commit is known once it is loaded.
    clusterer_name = getattr(clusterer, "name", getattr(clusterer, "__name__", "custom"))
    name = signature(
        "cluster_f1",
        match=name_of(match),
        prediction_clusters="given" if prediction_clusters is not None else clusterer_name,
        reference_clusters="given" if reference_clusters is not None else clusterer_name,
        n=len(rows),
    )
    return _aggregate(rows, ids, name)


def _step_f1(predicted: list[str], gold: list[str], match: Match) -> tuple[float, float, float]:
    """Return precision, recall and F1 of one step."""
    if not predicted or not gold:
        return _limit_case(len(predicted), len(gold))
    scores = match_matrix(gold, predicted, match)
    return _with_f1(scores.max(axis=0).mean(), scores.max(axis=1).mean())


def _step_cluster_f1(
    predicted: tuple[list[str], list[int]], gold: tuple[list[str], list[int]], match: Match
) -> tuple[float, float, float]:
    """Return precision, recall and F1 of one step whose sentences carry cluster labels 0..K-1."""
    (predicted_sentences, predicted_labels), (gold_sentences, gold_labels) = predicted, gold
    if not predicted_sentences or not gold_sentences:
        return _limit_case(len(predicted_sentences), len(gold_sentences))
    pairs = match_matrix(gold_sentences, predicted_sentences, match)
    clusters = np.zeros((max(gold_labels) + 1, max(predicted_labels) + 1))
    np.maximum.at(clusters, (np.array(gold_labels)[:, None], np.array(predicted_labels)[None, :]), pairs)
    total = sum(score for _, _, score in assign(clusters))
    return _with_f1(total / clusters.shape[1], total / clusters.shape[0])


def _limit_case(predicted: int, gold: int) -> tuple[float, float, float]:
    """Return the scores of a step where one side is empty."""
    if not predicted and not gold:
        return 1.0, 1.0, 1.0
    return (0.0, 1.0, 0.0) if predicted else (1.0, 0.0, 0.0)


def _with_f1(precision: float, recall: float) -> tuple[float, float, float]:
    """Add the harmonic mean; 0 where both are 0."""
    total = precision + recall
    return float(precision), float(recall), float(2 * precision * recall / total) if total else 0.0


def _labelled(
    steps: Steps, labels: Labels | None, clusterer: Callable | None, ids: tuple[str, ...], side: str
) -> list[tuple[list[str], list[int]]]:
    """Return, for every step, its distinct sentences and their labels 0..K-1."""
    if labels is not None and len(labels) != len(steps):
        raise ValueError(f"{side}_clusters has {len(labels)} steps, expected {len(steps)}")
    result = []
    for index, sentences in enumerate(steps):
        if labels is None:
            kept = sorted(set(without_no_change([sentences])[0]))
            step_labels = clusterer(kept) if kept else []
        else:
            kept, step_labels = list(sentences), labels[index]
        if len(step_labels) != len(kept):
            where = ids[index] if ids else f"index {index}"
            raise ValueError(
                f"step {where}: {len(step_labels)} {side} cluster labels for {len(kept)} sentences; give one each"
            )
        if labels is not None and len(kept) == 1 and is_no_change(kept[0]):
            kept, step_labels = [], []
        first = dict(reversed(list(zip(kept, step_labels, strict=True))))
        distinct = _unique(kept)
        result.append((distinct, relabel([first[sentence] for sentence in distinct])))
    return result


def without_no_change(steps: Steps) -> list[Sequence[str]]:
    """Return the steps' sentences; none for a step that says only that nothing changes."""
    return [[] if len(step) == 1 and is_no_change(step[0]) else step for step in steps]


def _unique(sentences: Sequence[str]) -> list[str]:
    """Return the distinct raw sentences in order of appearance."""
    return list(dict.fromkeys(sentences))


def _checked(predictions: Steps, references: Steps, ids: Sequence[str] | None) -> tuple[str, ...]:
    """Refuse mismatched or empty corpora and bare strings; return the ids as a tuple."""
    if len(predictions) != len(references):
        raise ValueError(f"{len(predictions)} steps predicted, {len(references)} in the reference: align them by id")
    if not len(predictions):
        raise ValueError("nothing to score: the corpus has no step")
    for name, steps in (("predictions", predictions), ("references", references)):
        for index, step in enumerate(steps):
            if isinstance(step, str):
                raise ValueError(f"{name}[{index}] is a string, expected a list of sentences: {step[:60]!r}")
    if ids is None:
        return ()
    if len(ids) != len(predictions):
        raise ValueError(f"{len(ids)} ids for {len(predictions)} steps")
    if repeated := [name for name, count in Counter(ids).items() if count > 1]:
        raise ValueError(f"{len(repeated)} ids stand more than once, first {repeated[0]!r}")
    return tuple(map(str, ids))


def _aggregate(rows: list[tuple[float, float, float]], ids: tuple[str, ...], name: str) -> Scores:
    """Average over steps."""
    per_step = np.array(rows, dtype=float)
    precision, recall, f1 = per_step.mean(axis=0)
    return Scores(float(precision), float(recall), float(f1), per_step, ids, name)
