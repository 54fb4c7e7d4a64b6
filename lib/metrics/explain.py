"""What a step's scores are made of: which sentence or cluster was matched with which."""

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from lib.metrics.clusters import assign, default_clusterer
from lib.metrics.match import match_matrix


def best_matches(predicted: Sequence[str], gold: Sequence[str], match: str = "rouge_l") -> pd.DataFrame:
    """Return each distinct predicted and each gold sentence with its best match on the other side.

    The mean of `match` over the rows of `predicted` is the original precision of the step, over those of `gold` its
    recall (`openpi_f1`).

    Returns
    -------
    DataFrame
        Columns side, sentence, best match (empty where nothing matches) and match, in [0, 1].
    """
    sides = {"predicted": list(dict.fromkeys(predicted)), "gold": list(gold)}
    scores = match_matrix(sides["gold"], sides["predicted"], match)
    rows = []
    for side, other, table in (("predicted", "gold", scores.T), ("gold", "predicted", scores)):
        for sentence, row in zip(sides[side], table, strict=True):
            best = int(row.argmax()) if len(row) and row.max() > 0 else None
            partner = "" if best is None else sides[other][best]
            rows.append((side, sentence, partner, 0.0 if best is None else float(row[best])))
    return pd.DataFrame(rows, columns=["side", "sentence", "best match", "match"])


def cluster_matches(
    predicted: Sequence[str],
    gold: Sequence[str],
    match: str = "rouge_l",
    clusterer: Callable[[Sequence[str]], Sequence[int]] | None = None,
) -> pd.DataFrame:
    """Return the clusters of both sides as `cluster_f1` assigns them to one another.

    The sum of `match` over the number of predicted clusters is the cluster-based precision of the step, over the
    number of gold clusters its recall.

    Returns
    -------
    DataFrame
        Columns predicted and gold (the sentences of a cluster, joined; empty without a partner) and match.
    """
    clusterer = clusterer or default_clusterer()
    sides = [_clusters(sentences, clusterer) for sentences in (gold, predicted)]
    scores = np.array([[match_matrix(g, p, match).max() for p in sides[1]] for g in sides[0]])
    pairs = assign(scores) if all(sides) else []
    alone = [set(range(len(side))) - {pair[at] for pair in pairs} for at, side in enumerate(sides)]
    rows = [(sides[1][p], sides[0][g], score) for g, p, score in pairs]
    rows += [(sides[1][p], [], 0.0) for p in sorted(alone[1])] + [([], sides[0][g], 0.0) for g in sorted(alone[0])]
    return pd.DataFrame(
        [("; ".join(p), "; ".join(g), score) for p, g, score in rows], columns=["predicted", "gold", "match"]
    )


def _clusters(sentences: Sequence[str], clusterer: Callable) -> list[list[str]]:
    """Return the distinct sentences by cluster."""
    kept = sorted(set(sentences))
    by_label: dict[int, list[str]] = {}
    for sentence, label in zip(kept, clusterer(kept) if kept else [], strict=True):
        by_label.setdefault(label, []).append(sentence)
    return list(by_label.values())
