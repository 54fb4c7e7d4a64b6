"""All six F1s of one set of predictions: `six_f1s`, and the table that shows them."""

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from lib.data.scoring import ScoredFile, align
from lib.intervals import bootstrap_interval, paired_difference
from lib.metrics.clusters import EmbeddingClusterer
from lib.metrics.f1 import Scores, cluster_f1, openpi_f1
from lib.metrics.match import MATCHES
from lib.provenance import extend


def six_f1s(
    predictions: ScoredFile,
    references: ScoredFile,
    data: str,
    clusterer: EmbeddingClusterer | None = None,
    deduplicate: bool = True,
) -> dict[str, Scores]:
    """Return the original and the cluster-based F1 under all three matches, as in the paper's Tables 2 and 3.

    Parameters
    ----------
    predictions, references : ScoredFile
        Joined by id; cluster labels in them are used, else `clusterer` makes them.
    data : str
        What was scored, for the signatures: `openpi-c/test`.
    clusterer : EmbeddingClusterer, optional
        Default: MiniLM at 0.75.
    deduplicate : bool
        Of the original F1, see `openpi_f1`.

    Returns
    -------
    dict from str to Scores
        `original_exact`, ..., `cluster_rouge_l`.
    """
    ids = align(predictions, references)
    predicted = [predictions.sentences[name] for name in ids]
    gold = [references.sentences[name] for name in ids]
    labels = {
        side: None if file.clusters is None else [file.clusters[name] for name in ids]
        for side, file in (("prediction_clusters", predictions), ("reference_clusters", references))
    }
    scores = {f"original_{match}": openpi_f1(predicted, gold, match, deduplicate, ids) for match in MATCHES}
    scores |= {
        f"cluster_{match}": cluster_f1(predicted, gold, match, clusterer=clusterer, ids=ids, **labels)
        for match in MATCHES
    }
    return {name: replace(score, signature=extend(score.signature, data=data)) for name, score in scores.items()}


def table(scores: dict[str, Scores], seed: int = 0) -> pd.DataFrame:
    """Return precision, recall and F1 in percent, the 95% interval of F1 over procedures, and the signature."""
    rows = [
        (100 * score.precision, 100 * score.recall, 100 * score.f1, interval(score, seed), score.signature)
        for score in scores.values()
    ]
    columns = ["P", "R", "F1", "F1 95% interval", "signature"]
    return pd.DataFrame(rows, index=pd.Index(list(scores), name="metric"), columns=columns)


def interval(score: Scores, seed: int = 0) -> str:
    """Return the interval of F1 in percent, `12.1 to 13.4`; empty where there are fewer than two procedures."""
    procedures = [name.rsplit("||", 1)[0] for name in score.ids]
    if len(set(procedures)) < 2:
        return ""
    low, high = bootstrap_interval(score.per_step[:, 2], procedures, seed)
    return f"{100 * low:.1f} to {100 * high:.1f}"


def as_record(scores: dict[str, Scores], seed: int = 0) -> dict[str, dict]:
    """Return what `metrics.json` holds of each score: means in [0, 1], interval of F1 in percent, signature."""
    return {
        name: {
            "precision": score.precision,
            "recall": score.recall,
            "f1": score.f1,
            "interval": interval(score, seed),
            "signature": score.signature,
        }
        for name, score in scores.items()
    }


def per_step(scores: dict[str, Scores]) -> dict[str, list]:
    """Return the steps' ids and, for each score, their rows of precision, recall and F1, in the ids' order."""
    if not scores:
        return {}
    ids = next(iter(scores.values())).ids
    return {"ids": list(ids)} | {name: score.per_step.round(6).tolist() for name, score in scores.items()}


def compare(scores: dict[str, Scores], other: dict[str, list], seed: int = 0) -> pd.DataFrame:
    """Return F1 beside another model's on the same steps, in percent, with a paired bootstrap over procedures.

    Parameters
    ----------
    scores : dict from str to Scores
    other : dict
        As `per_step` gives it, for the other model.

    Raises
    ------
    ValueError
        If the other's steps are not the same.
    """
    rows = []
    for name, score in scores.items():
        f1 = score.per_step[:, 2]
        theirs = aligned(score.ids, other["ids"], [values[2] for values in other[name]])
        rows.append((100 * f1.mean(), 100 * sum(theirs) / len(theirs), *difference(score.ids, f1, theirs, seed)))
    columns = ["F1", "other F1", "difference", "low", "high", "verdict"]
    return pd.DataFrame(rows, index=pd.Index(list(scores), name="metric"), columns=columns)


def aligned(ids: Sequence[str], other_ids: Sequence[str], values: Sequence) -> list:
    """Return values that stand beside `other_ids` in the order of `ids`.

    Raises
    ------
    ValueError
        If the ids are not the same.
    """
    if set(ids) != set(other_ids):
        raise ValueError(f"{len(ids)} steps here, {len(other_ids)} there, and not the same ones")
    place = dict(zip(other_ids, values, strict=True))
    return [place[name] for name in ids]


def difference(
    ids: Sequence[str], ours: Sequence[float], theirs: Sequence[float], seed: int = 0
) -> tuple[float, float, float, str]:
    """Return mean(ours - theirs) in points, its 95% interval over procedures, and what that shows."""
    procedures = [name.rsplit("||", 1)[0] for name in ids]
    mean, low, high = (100 * value for value in paired_difference(ours, theirs, procedures, seed))
    return mean, low, high, "better" if low > 0 else "worse" if high < 0 else "no difference shown"


def f1_table(several: dict[str, dict[str, Scores]]) -> pd.DataFrame:
    """Return the F1s of several sets of predictions in percent, a column each."""
    return pd.DataFrame({who: {name: 100 * s.f1 for name, s in scores.items()} for who, scores in several.items()})


def beats(scores: dict[str, Scores], baseline: dict[str, Scores]) -> str:
    """Return a sentence on which of the six F1s of a model are above a baseline's."""
    above = [name for name, score in scores.items() if score.f1 > baseline[name].f1]
    missing = [name for name in scores if name not in above]
    rest = f"; it does not in {', '.join(missing)}" if missing else ""
    return f"the model beats the majority-template baseline in {len(above)} of {len(scores)} F1s{rest}"
