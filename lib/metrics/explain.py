"""What a step's scores are made of: which sentence or cluster was matched with which."""

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from lib.metrics.clusters import assign, default_clusterer
from lib.metrics.match import match_matrix


def best_partners(predicted: Sequence[str], gold: Sequence[str], match: str = "rouge_l") -> dict[str, list]:
    """Return, for each distinct predicted and each gold sentence, its best match on the other side.

    Parameters
    ----------
    predicted, gold : sequence of str
        Of one step. The set of `predicted` is taken, in order of appearance.
    match : {"exact", "bleu", "rouge_l"}

    Returns
    -------
    dict
        `predicted` and `gold`: a (position on the other side or None, match in [0, 1]) for each sentence. The mean
        match of `predicted` is the original precision of the step, that of `gold` its recall (`openpi_f1`).
    """
    scores = match_matrix(list(gold), list(dict.fromkeys(predicted)), match)
    return {"predicted": [_best(row) for row in scores.T], "gold": [_best(row) for row in scores]}


def cluster_pairs(
    predicted: Sequence[str],
    gold: Sequence[str],
    match: str = "rouge_l",
    clusterer: Callable[[Sequence[str]], Sequence[int]] | None = None,
) -> list[tuple[list[str], list[str], float]]:
    """Return the clusters of both sides as `cluster_f1` assigns them to one another.

    The sum of `match` over the number of predicted clusters is the cluster-based precision of the step, over the
    number of gold clusters its recall.

    Returns
    -------
    list of (predicted sentences, gold sentences, match)
        A cluster without a partner has an empty list beside it.
    """
    clusterer = clusterer or default_clusterer()
    sides = [_clusters(sentences, clusterer) for sentences in (gold, predicted)]
    scores = np.array([[match_matrix(g, p, match).max() for p in sides[1]] for g in sides[0]])
    pairs = assign(scores) if all(sides) else []
    alone = [set(range(len(side))) - {pair[at] for pair in pairs} for at, side in enumerate(sides)]
    found = [(sides[1][p], sides[0][g], score) for g, p, score in pairs]
    found += [(sides[1][p], [], 0.0) for p in sorted(alone[1])]
    return found + [([], sides[0][g], 0.0) for g in sorted(alone[0])]


def best_matches(predicted: Sequence[str], gold: Sequence[str], match: str = "rouge_l") -> pd.DataFrame:
    """Return `best_partners` as a table: side, sentence, best match (empty where nothing matches), match."""
    sides = {"predicted": list(dict.fromkeys(predicted)), "gold": list(gold)}
    partners = best_partners(predicted, gold, match)
    rows = [
        (side, sentence, "" if place is None else sides[other][place], score)
        for side, other in (("predicted", "gold"), ("gold", "predicted"))
        for sentence, (place, score) in zip(sides[side], partners[side], strict=True)
    ]
    return pd.DataFrame(rows, columns=["side", "sentence", "best match", "match"])


def cluster_matches(
    predicted: Sequence[str],
    gold: Sequence[str],
    match: str = "rouge_l",
    clusterer: Callable[[Sequence[str]], Sequence[int]] | None = None,
) -> pd.DataFrame:
    """Return `cluster_pairs` as a table: predicted, gold (the sentences of a cluster, joined), match."""
    rows = [("; ".join(p), "; ".join(g), score) for p, g, score in cluster_pairs(predicted, gold, match, clusterer)]
    return pd.DataFrame(rows, columns=["predicted", "gold", "match"])


def _best(row: np.ndarray) -> tuple[int | None, float]:
    """Return where the largest match stands, and it; None where nothing matches."""
    place = int(row.argmax()) if len(row) and row.max() > 0 else None
    return place, 0.0 if place is None else float(row[place])


def _clusters(sentences: Sequence[str], clusterer: Callable) -> list[list[str]]:
    """Return the distinct sentences by cluster."""
    kept = sorted(set(sentences))
    by_label: dict[int, list[str]] = {}
    for sentence, label in zip(kept, clusterer(kept) if kept else [], strict=True):
        by_label.setdefault(label, []).append(sentence)
    return list(by_label.values())
