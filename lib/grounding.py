"""Which state changes does the text not carry? `fit` tunes a detector on what annotators dropped, `check` applies it.

The paper counted hallucinations by hand (749 against 393 in 50 test texts). This is an automatic stand-in whose own
precision is measured first, on decisions that it was not tuned on; `to_count_by_hand` prepares a count by people.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape

import numpy as np
import pandas as pd

from lib import cleaning
from lib.annotation import Item
from lib.cleaning import Decisions, change_id
from lib.cleaning.screens import SCREENS, screen_items
from lib.clues import Reader, change_features
from lib.data import Procedure, load_splits
from lib.heuristics import features, tune
from lib.intervals import bootstrap_interval
from lib.text import to_sentence

#: Left out: they look at what else was said, by annotators in one case and by a model in the other.
OTHERS = ["entity changed before", "changes of the step"]
MENTIONED = "entity in the text so far"


@dataclass(frozen=True)
class Detector:
    """A tuned detector of changes that the text does not carry, and how far it can be trusted.

    Attributes
    ----------
    model, threshold
        A classifier of change features, and the probability from which a change is flagged.
    quality : DataFrame
        On the second split's decisions, for `flagged` and for the plain rule `entity not mentioned`: items, share that
        annotators dropped, share flagged, precision and recall, in [0, 1].
    """

    model: object
    threshold: float
    quality: pd.DataFrame


def fit(
    train: tuple[Sequence[Procedure], Decisions],
    test: tuple[Sequence[Procedure], Decisions],
    embedder: str = "wheel:minilm",
    revision: str = "",
    seed: int = 0,
) -> Detector:
    """Tune on the first split's decisions on state changes and measure on the second's.

    Parameters
    ----------
    train, test : (procedures, decisions)
        Raw data and what became of it, see `lib.cleaning`.
    embedder, revision : str
        See `lib.metrics.EmbeddingClusterer`.

    Raises
    ------
    ValueError
        If train has fewer than two dropped or two kept changes.
    """
    reader = Reader([*train[0], *test[0]], embedder, revision)
    (x, y), (x_test, y_test) = (features("change", *split, reader) for split in (train, test))
    if min(y.sum(), (~y).sum()) < 2:
        raise ValueError(f"{int(y.sum())} dropped and {int((~y).sum())} kept changes: at least two of each are needed")
    model, threshold = tune(x.drop(columns=OTHERS), y, seed)
    found = {
        "flagged": model.predict_proba(x_test.drop(columns=OTHERS))[:, 1] >= threshold,
        "entity not mentioned": (x_test[MENTIONED] == 0).to_numpy(),
    }
    rows = {
        name: {
            "items": len(y_test),
            "share dropped": float(y_test.mean()),
            "share flagged": float(flags.mean()),
            "precision": float(y_test[flags].mean()) if flags.any() else float("nan"),
            "recall": float(flags[y_test].mean()) if y_test.any() else float("nan"),
        }
        for name, flags in found.items()
    }
    return Detector(model, threshold, pd.DataFrame.from_dict(rows, orient="index"))


def judged(data: str, decisions: str) -> dict[str, tuple[list[Procedure], Decisions]]:
    """Return, for each split of some raw data, its procedures and what became of their items.

    Parameters
    ----------
    data : str
        Where OpenPI lies, see `lib.data.load_splits`.
    decisions : {"votes", "release"}
        See `lib.cleaning.decide`.
    """
    raw = load_splits("openpi", data)
    if decisions == "release":
        fates = cleaning.derive_splits(raw, cleaning.release_of(data))
    else:
        results, _ = cleaning.decide(raw, decisions, "", data)
        fates = {split: cleaning.as_decisions(raw[split], result) for split, result in results.items()}
    return {split: (raw[split], fates[split]) for split in fates}


def check(
    detector: Detector, procedures: Sequence[Procedure], embedder: str = "wheel:minilm", revision: str = ""
) -> pd.DataFrame:
    """Return a row a state change of procedures, which may be predicted ones (`lib.decoding.with_predictions`).

    Returns
    -------
    DataFrame
        `id` (as in a votes file), `procedure`, `step`, `sentence`, `probability` that annotators would drop it,
        `flagged`, and `entity not mentioned`: no word of the entity stands in the text up to the step.
    """
    reader = Reader(procedures, embedder, revision)
    rows, measured = [], []
    for procedure in procedures:
        for index, step in enumerate(procedure.steps):
            for place, change in enumerate(step.changes, start=1):
                rows.append(
                    (change_id(procedure.id, step.number, place), procedure.id, step.number, to_sentence(change))
                )
                measured.append(change_features(procedure, index, change, reader))
    frame = pd.DataFrame(rows, columns=["id", "procedure", "step", "sentence"])
    x = pd.DataFrame(measured)
    if x.empty:
        return frame.assign(**{"probability": [], "flagged": [], "entity not mentioned": []})
    probability = detector.model.predict_proba(x.drop(columns=OTHERS))[:, 1]
    flags = {"flagged": probability >= detector.threshold, "entity not mentioned": x[MENTIONED] == 0}
    return frame.assign(probability=probability, **flags)


def rates(checked: Mapping[str, pd.DataFrame], number: int = 50, seed: int = 0) -> pd.DataFrame:
    """Return how many changes are flagged, for some procedures drawn at random and for all of them.

    Parameters
    ----------
    checked : mapping
        Model -> `check` of its predictions on the same procedures.
    number : int
        How many procedures to draw, the same ones for every model; the paper took 50.

    Returns
    -------
    DataFrame
        A row a model, choice of procedures and measure: procedures, changes, `hallucinated` (their number), `share` in
        [0, 1] with a 95% interval over procedures (empty for one procedure).
    """
    everything = sorted(set().union(*(frame.procedure for frame in checked.values())))
    drawn = set(random.Random(seed).sample(everything, min(number, len(everything))))
    rows = []
    for procedures, chosen in ((f"{len(drawn)} drawn", drawn), ("all", set(everything))):
        for measure in ("flagged", "entity not mentioned"):
            for name, frame in checked.items():
                part = frame[frame.procedure.isin(chosen)]
                flags = part[measure].to_numpy(dtype=float)
                several = part.procedure.nunique() > 1
                low, high = bootstrap_interval(flags, part.procedure, seed) if several else (np.nan, np.nan)
                share = float(flags.mean()) if len(flags) else float("nan")
                rows.append((procedures, measure, name, len(chosen), len(part), int(flags.sum()), share, low, high))
    columns = ["procedures", "measure", "model", "texts", "changes", "hallucinated", "share", "low", "high"]
    return pd.DataFrame(rows, columns=columns)


def said_at(
    checked: Mapping[str, pd.DataFrame], procedure: Procedure, number: int
) -> dict[str, list[tuple[str, bool]]]:
    """Return what each model says about one step, and whether it is flagged, for a figure or `to_html`."""
    found = {}
    for name, frame in checked.items():
        part = frame[(frame.procedure == procedure.id) & (frame.step == number)]
        found[name] = list(zip(part.sentence, part.flagged.astype(bool), strict=True))
    return found


def to_html(said: Mapping[str, Sequence[tuple[str, bool]]]) -> str:
    """Return the same as HTML, a list a model, what is flagged marked; texts are escaped."""
    parts = []
    for name, sentences in said.items():
        lines = [f"<li>{f'<mark>{escape(s)}</mark>' if flag else escape(s)}</li>" for s, flag in sentences]
        parts.append(f"<p><b>{escape(name)}</b></p><ul>{''.join(lines) or '<li><i>nothing</i></li>'}</ul>")
    return "".join(parts)


def to_count_by_hand(
    predicted: Mapping[str, Sequence[Procedure]], number: int = 50, seed: int = 0
) -> tuple[list[Item], dict[str, list[str]]]:
    """Return the items of a count by hand: every predicted change of some procedures, models mixed and unnamed.

    Use them with `lib.annotation.Annotator(items, SCREENS["change"], path, annotator)`, and `counted` on the votes.

    Parameters
    ----------
    predicted : mapping
        Model -> procedures with its changes, see `lib.decoding.with_predictions`.
    number : int
        How many procedures to draw.

    Returns
    -------
    items : list of Item
        In an order that does not tell the model; a change that several models predict is asked about once.
    origin : dict
        Item id -> the models that predict it.
    """
    ids = sorted({procedure.id for procedures in predicted.values() for procedure in procedures})
    drawn = set(random.Random(seed).sample(ids, min(number, len(ids))))
    asked, origin = {}, {}
    for name, procedures in predicted.items():
        for item in screen_items([p for p in procedures if p.id in drawn], "change"):
            key = (item.id.rsplit("||", 1)[0], item.statement)
            asked.setdefault(key, item)
            origin.setdefault(key, []).append(name)
    keys = sorted(asked)
    random.Random(seed).shuffle(keys)
    numbered = {key: f"{key[0]}||{place}" for place, key in enumerate(keys, start=1)}
    items = [replace(asked[key], id=numbered[key]) for key in keys]
    return items, {numbered[key]: sorted(set(origin[key])) for key in keys}


def counted(votes: Mapping[str, str], origin: Mapping[str, Sequence[str]]) -> pd.DataFrame:
    """Return, for each model, how many of its changes were judged and how many of them not certain.

    Parameters
    ----------
    votes : mapping
        Item id -> one of the choices of the screen on state changes.
    origin : mapping
        From `to_count_by_hand`.
    """
    certain = SCREENS["change"].choices[0]
    rows: dict[str, list[int]] = {}
    for item, models in origin.items():
        for model in models:
            row = rows.setdefault(model, [0, 0, 0])
            row[0] += 1
            row[1] += item in votes
            row[2] += item in votes and votes[item] != certain
    return pd.DataFrame.from_dict(rows, orient="index", columns=["changes", "judged", "hallucinated"])
