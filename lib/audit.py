"""What the data sets hold: `counts` (Table 1), `issues` (sec. 2), `distributions`, `field_problems`, and more.

Nothing here returns text of the data: counts and shares only, so that results can be published.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from lib import cleaning, published
from lib.data import Procedure, ScoredFile, StateChange, fetch, read_scored
from lib.data import load as load_split
from lib.data.lines import read_jsonl
from lib.data.procedures import SPLITS, count, root_of
from lib.metrics import EmbeddingClusterer, Scores, bcubed
from lib.metrics.report import six_f1s
from lib.text import NO_CHANGE, PRESETS, parse_sentence, split_answer

#: What the clusterer is held against, by data.
GOLD_CLUSTERS = {
    "public": "released clusters of OpenPI-C test",
    "sample": "20 sample steps clustered by hand",
}
#: Stage -> the paper's row.
ISSUES = {
    "procedure": "stage 1, procedures",
    "step": "stage 2, steps",
    "change": "stage 3, state changes",
}
ARTICLES = ("the ", "a ", "an ")


def load(data: str) -> dict[str, list[Procedure]]:
    """Return both data sets by `openpi/train`, ..., `openpi-c/test`.

    Parameters
    ----------
    data : {"public", "sample"}
        The public data, or the bundled sample; one never stands in for the other.
    """
    names = ("openpi", "openpi-c")
    return {f"{name}/{split}": load_split(name, split, data) for name in names for split in SPLITS}


def counts(procedures: dict[str, list[Procedure]]) -> pd.DataFrame:
    """Return the numbers of procedures, steps and state changes: the paper's Table 1, a row a split."""
    rows = {name: count(split) for name, split in procedures.items()}
    return pd.DataFrame.from_dict(rows, orient="index", columns=["procedures", "steps", "state changes"])


def issues(procedures: dict[str, list[Procedure]]) -> pd.DataFrame:
    """Return the rates of the three kinds of issues, in percent, as the release bounds them; the paper's beside them.

    See `lib.cleaning.bounds`: what is missing from the release is known, at which stage it was dropped often is not.

    Returns
    -------
    DataFrame
        A row a stage, columns `paper` and the bounds of every split and of all together.
    """
    counted = {
        split: cleaning.bounds(
            procedures[f"openpi/{split}"],
            cleaning.derive_decisions(procedures[f"openpi/{split}"], procedures[f"openpi-c/{split}"]),
        )
        for split in SPLITS
    }
    counted["all"] = sum(counted.values())
    frame = pd.DataFrame({"paper": [published.number("cleaning", row, "dropped").printed for row in ISSUES.values()]})
    for split, counts in counted.items():
        for bound, share in cleaning.shares(counts).items():
            frame[f"{split}, {bound}"] = 100 * share.to_numpy()
    return frame.set_axis(list(ISSUES), axis=0)


def distributions(procedures: dict[str, list[Procedure]]) -> pd.DataFrame:
    """Return how steps, changes, entities and attributes are distributed, a row a split."""
    return pd.DataFrame.from_dict({name: _distribution(split) for name, split in procedures.items()}, orient="index")


def histograms(procedures: dict[str, list[Procedure]]) -> dict[str, dict[str, np.ndarray]]:
    """Return, for `plots.distributions`, steps per procedure and changes per step of both data sets, splits pooled."""
    pooled = {
        name: [
            procedure for key, split in procedures.items() if key.split("/")[0] == name.lower() for procedure in split
        ]
        for name in ("OpenPI", "OpenPI-C")
    }
    quantities = (
        ("steps per procedure", steps_per_procedure, 8),
        ("state changes per step", changes_per_step, 20),
    )
    return {
        title: {name: histogram(of(chosen), largest) for name, chosen in pooled.items()}
        for title, of, largest in quantities
    }


def histogram(values: Sequence[int], largest: int) -> np.ndarray:
    """Return how many values are 0, 1, ..., `largest` or more, (largest + 1,)."""
    return np.bincount(np.minimum(np.asarray(values, dtype=int), largest), minlength=largest + 1)


def steps_per_procedure(procedures: Sequence[Procedure]) -> list[int]:
    """Return the number of steps of every procedure."""
    return [len(procedure.steps) for procedure in procedures]


def changes_per_step(procedures: Sequence[Procedure]) -> list[int]:
    """Return the number of state changes of every step."""
    return [len(step.sentences) for procedure in procedures for step in procedure.steps]


def field_problems(procedures: dict[str, list[Procedure]]) -> pd.DataFrame:
    """Return how many changes have fields that the sentence format cannot carry, a row a split.

    `comma` anywhere (a generated answer is cut at commas), ` of ` in attribute or entity and `was` anywhere (both
    move the parts when a sentence is parsed), letters outside ASCII, exact duplicates within a step, sentences that
    do not parse at all.
    """
    return pd.DataFrame.from_dict({name: _field_problems(split) for name, split in procedures.items()}, orient="index")


def ceilings(procedures: dict[str, list[Procedure]], clusterer: EmbeddingClusterer) -> pd.DataFrame:
    """Return what a perfect model would score: gold written as one text, cut at commas again, held against gold.

    Returns
    -------
    DataFrame
        A row a test split and preset, in percent: gold changes with a comma in them, changes lost, and original and
        cluster-based F1 under exact match and ROUGE-L. Below 100 no model of the format can be blamed.
    """
    rows = {}
    for name in ("openpi/test", "openpi-c/test"):
        steps = [step for procedure in procedures[name] for step in procedure.steps]
        gold = ScoredFile({str(place): step.sentences for place, step in enumerate(steps)})
        changes = sum(map(len, gold.sentences.values()))
        comma = sum("," in sentence for step in gold.sentences.values() for sentence in step)
        for preset in PRESETS:
            written = {
                place: split_answer(", ".join(step) or NO_CHANGE, preset) for place, step in gold.sentences.items()
            }
            scores = six_f1s(ScoredFile(written), gold, name, clusterer)
            kept = sum(map(len, written.values()))
            chosen = ("original_exact", "original_rouge_l", "cluster_exact", "cluster_rouge_l")
            rows[f"{name}, {preset}"] = [comma / changes, 1 - kept / changes, *(scores[key].f1 for key in chosen)]
    columns = ["with a comma", "lost", "original exact", "original ROUGE-L", "cluster exact", "cluster ROUGE-L"]
    return 100 * pd.DataFrame.from_dict(rows, orient="index", columns=columns)


@dataclass(frozen=True)
class RoundTrip:
    """How many sentences parse back to the parts that the annotators gave."""

    sentences: int
    disagree: int


def round_trip(split: str, preset: str = "released", data: str = "public") -> RoundTrip:
    """Parse the original OpenPI's sentences and compare with the parts that its metadata gives beside them.

    Only this tests the parser: OpenPI-C's four parts round-trip by construction. The public files have these parts
    for dev and test.
    """
    root = root_of(data)
    name = f"openpi/gold/{split}/id_answers_metadata.jsonl"
    total = disagree = 0
    for _, row in read_jsonl(fetch(name) if root is None else root / name):
        for part in row["answers_metadata"]:
            total += 1
            given = StateChange(part["entity"], part["attr"], part["before"], part["after"])
            disagree += parse_sentence(part["answer"], preset) != given
    return RoundTrip(total, disagree)


def cluster_agreement(data: str, clusterer: EmbeddingClusterer) -> tuple[Scores, int]:
    """Return BCubed of the clusterer, and the number of pairs whose similarity is within 1e-4 of its threshold.

    Gold are the released clusters of OpenPI-C's test split, which stsb-distilroberta-base-v2 made, or in the sample
    20 steps that a person clustered.
    """
    root = root_of(data)
    gold = read_scored(fetch("openpi-c/test.jsonl.clustered") if root is None else root / "clusters.jsonl")
    clusterer.prepare([sentence for step in gold.sentences.values() for sentence in step])
    before = len(clusterer.near_threshold)
    predicted = [clusterer(step) for step in gold.sentences.values()]
    return bcubed(predicted, list(gold.clusters.values())), len(clusterer.near_threshold) - before


def score_published(clusterer: EmbeddingClusterer, deduplicate: bool = False) -> dict[str, Scores]:
    """Score the GPT-2 predictions that were published with OpenPI: the first row of the OpenPI-C paper's Table 3.

    By default the original F1 is taken without the set of predictions, as those numbers were made. Public data only.
    """
    predictions = read_scored(fetch("openpi/emnlp2020/test.predictions.jsonl"))
    references = read_scored(fetch("openpi/gold/test/id_answers.jsonl"))
    return six_f1s(predictions, references, "openpi/test", clusterer, deduplicate=deduplicate)


def example(procedure: Procedure) -> pd.DataFrame:
    """Return a procedure as a table, a row a state change (for our own sample only)."""
    rows = [
        {"step": step.number, "text": step.text, **vars(change)} for step in procedure.steps for change in step.changes
    ]
    return pd.DataFrame(rows).set_index(["step", "text", "entity"])


def _distribution(procedures: Sequence[Procedure]) -> dict[str, float]:
    """Return the summary of one split."""
    changes = [change for procedure in procedures for step in procedure.steps for change in step.changes]
    entities = {change.entity for change in changes}
    steps, per_step = steps_per_procedure(procedures), changes_per_step(procedures)
    return {
        "steps per procedure": float(np.mean(steps)),
        "changes per step": float(np.mean(per_step)),
        "steps without change": per_step.count(0),
        "distinct entities": len(entities),
        # Surface variants split one entity into several memory slots.
        "without article": len({_without_article(entity) for entity in entities}),
        "distinct attributes": len({change.attribute for change in changes}),
        "tracked pairs": len({(p.id, c.entity, c.attribute) for p in procedures for s in p.steps for c in s.changes}),
    }


def _field_problems(procedures: Sequence[Procedure]) -> dict[str, int]:
    """Return the counts of one split."""
    steps = [step for procedure in procedures for step in procedure.steps]
    changes = [change for step in steps for change in step.changes]
    parts = [tuple(vars(change).values()) for change in changes]
    return {
        "comma": sum(any("," in part for part in change) for change in parts),
        "of in entity or attribute": sum(" of " in change.entity or " of " in change.attribute for change in changes),
        "was": sum(any("was" in part.split() for part in change) for change in parts),
        "not ASCII": sum(not "".join(change).isascii() for change in parts),
        "duplicates": sum(len(step.changes) - len(set(step.changes)) for step in steps),
        "unparsed": sum(len(step.unparsed) for step in steps),
    }


def _without_article(entity: str) -> str:
    """Drop a leading article."""
    return next((entity[len(article) :] for article in ARTICLES if entity.startswith(article)), entity)
