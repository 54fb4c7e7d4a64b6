"""Where cleaning may be needed, without an annotator: `evaluate`.

Does a text look like a procedure, is a step executable, is a change grounded in the text so far? A small model is
tuned on the decisions of one split, and its quality is reported on another. What comes out are candidates to show to
an annotator first, not replacements for one.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from lib.cleaning import DROPPED, KEPT, STAGES, Decisions, change_id
from lib.clues import Reader, change_features, procedure_features, step_features
from lib.data import Procedure, Step, step_id


@dataclass(frozen=True)
class Evaluation:
    """How well the heuristics find what was dropped.

    Attributes
    ----------
    summary : DataFrame
        A row a stage: items, share dropped, precision, recall and F1 at the threshold tuned on train, area under the
        curve (0.5 is chance), all on the second split, in [0, 1].
    features : DataFrame
        A row a feature: its area under the curve alone on the second split; below 0.5, low values are suspicious.
    scores : dict
        Stage -> Series, item id -> estimated probability of being dropped.
    """

    summary: pd.DataFrame
    features: pd.DataFrame
    scores: dict[str, pd.Series]


def evaluate(
    train: tuple[Sequence[Procedure], Decisions],
    test: tuple[Sequence[Procedure], Decisions],
    embedder: str = "wheel:minilm",
    revision: str = "",
    seed: int = 0,
) -> Evaluation:
    """Fit a logistic regression a stage on the first split's decisions and score the second split.

    Steps count within procedures that remain, changes within steps that remain: what went with something larger says
    nothing about the item itself. A stage of which train has fewer than two dropped or kept items is left out. The
    threshold is the one of the best F1 in cross-validation on train.

    Parameters
    ----------
    train, test : (procedures, decisions)
    embedder, revision : str
        See `lib.metrics.EmbeddingClusterer`.
    """
    from sklearn.metrics import precision_recall_fscore_support, roc_auc_score

    reader = Reader([*train[0], *test[0]], embedder, revision)
    rows, singles, scores = {}, [], {}
    for stage in STAGES:
        (x, y), (x_test, y_test) = (features(stage, *split, reader) for split in (train, test))
        if min(y.sum(), (~y).sum()) < 2 or not len(y_test):
            continue  # nothing to learn from
        model, threshold = tune(x, y, seed)
        found = pd.Series(model.predict_proba(x_test)[:, 1], index=x_test.index)
        p, r, f, _ = precision_recall_fscore_support(y_test, found >= threshold, average="binary", zero_division=0)
        area = roc_auc_score(y_test, found) if 0 < y_test.sum() < len(y_test) else float("nan")
        rows[stage] = (len(y_test), float(y_test.mean()), float(p), float(r), float(f), float(area))
        scores[stage] = found
        for name in x_test:
            alone = roc_auc_score(y_test, x_test[name]) if np.isfinite(area) else float("nan")
            singles.append((stage, name, float(alone)))
    columns = ["items", "share dropped", "precision", "recall", "f1", "area under the curve"]
    return Evaluation(
        pd.DataFrame.from_dict(rows, orient="index", columns=columns),
        pd.DataFrame(singles, columns=["stage", "feature", "area under the curve"]).set_index(["stage", "feature"]),
        scores,
    )


def tune(x: pd.DataFrame, y: np.ndarray, seed: int = 0) -> tuple[object, float]:
    """Return a logistic regression fitted on features, and the threshold of its best F1 in cross-validation.

    Parameters
    ----------
    x : DataFrame, (items, features)
    y : (items,) bool
        Whether the item was dropped; at least two of each kind.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import precision_recall_curve
    from sklearn.model_selection import StratifiedKFold, cross_val_predict
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = make_pipeline(StandardScaler(), LogisticRegression(class_weight="balanced", max_iter=1000))
    folds = StratifiedKFold(min(5, int(y.sum())), shuffle=True, random_state=seed)
    held_out = cross_val_predict(model, x, y, cv=folds, method="predict_proba")[:, 1]
    precision, recall, thresholds = precision_recall_curve(y, held_out)
    f1 = 2 * precision * recall / np.maximum(precision + recall, 1e-12)
    return model.fit(x, y), float(thresholds[f1[:-1].argmax()])


def evaluate_splits(
    raw: Mapping[str, Sequence[Procedure]],
    decisions: Mapping[str, Decisions],
    embedder: str = "wheel:minilm",
    revision: str = "",
    seed: int = 0,
) -> Evaluation:
    """Evaluate on train and test where the data has both, else return empty tables."""
    if {"train", "test"} <= decisions.keys():
        train, test = ((raw[split], decisions[split]) for split in ("train", "test"))
        return evaluate(train, test, embedder, revision, seed)
    return Evaluation(pd.DataFrame(), pd.DataFrame(), {})


def candidates(evaluation: Evaluation, stage: str, number: int = 10) -> list[str]:
    """Return the ids of the most suspicious items of a stage, for an annotator to begin with."""
    return evaluation.scores[stage].sort_values(ascending=False, kind="stable").index[:number].tolist()


def features(
    stage: str, procedures: Sequence[Procedure], decisions: Decisions, reader: Reader
) -> tuple[pd.DataFrame, np.ndarray]:
    """Return features and whether the item was dropped, a row an item that stood to be judged at this stage."""
    rows = dict(_rows(stage, procedures, decisions, reader))
    fates: Mapping[str, str] = decisions.of(stage)
    frame = pd.DataFrame.from_dict(rows, orient="index")
    return frame, np.array([fates[item] == DROPPED for item in frame.index], dtype=bool)


def _rows(
    stage: str, procedures: Sequence[Procedure], decisions: Decisions, reader: Reader
) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield item id and features."""
    for procedure in procedures:
        if stage == "procedure":
            yield procedure.id, procedure_features(procedure, reader)
            continue
        if decisions.procedures[procedure.id] == DROPPED:
            continue
        for index, step in enumerate(procedure.steps):
            if stage == "step":
                yield step_id(procedure.id, step.number), step_features(procedure, index, reader)
            elif decisions.steps[step_id(procedure.id, step.number)] == KEPT:
                yield from _change_rows(procedure, index, step, reader)


def _change_rows(procedure: Procedure, index: int, step: Step, reader: Reader) -> Iterator[tuple[str, dict]]:
    """Yield item id and features of a step's changes."""
    for position, change in enumerate(step.changes, start=1):
        yield change_id(procedure.id, step.number, position), change_features(procedure, index, change, reader)
