"""What the explorer shows: for each step of the sample the gold changes, what each model said, and how that scores."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lib import results
from lib.data import Procedure, ScoredFile, read_scored
from lib.data.procedures import step_id
from lib.data.scoring import align, from_procedures
from lib.metrics.explain import best_partners, cluster_pairs
from lib.metrics.f1 import without_no_change
from lib.metrics.match import MATCHES
from lib.metrics.report import six_f1s
from lib.paths import run_dir, shown
from lib.rows import model_names

NOTEBOOKS = ("03_baselines", "04_emem", "05_econd")


@dataclass(frozen=True)
class Said:
    """A predictions file, and what stands behind it: model, size, updates."""

    path: Path
    model: str


def said_files(profile: str) -> dict[str, Said]:
    """Return the files in which the finished runs of a profile noted what their models said about the sample.

    Returns
    -------
    dict from str to Said
        Table row, with its data set where that is the original OpenPI and what is ablated; the run's name where two
        runs would be called the same.
    """
    found: dict[str, Said] = {}
    for notebook in NOTEBOOKS:
        for run in results.finished_runs(profile, notebook):
            metrics = results.load(profile, notebook, run)
            for path in sorted(run_dir(profile, notebook, run).glob("*sample_predictions.jsonl")):
                name = _name(metrics, path)
                behind = model_names({run: metrics})[run]
                found[name if name not in found else f"{name} ({run})"] = Said(path, behind)
    return found


def explored(procedures: Sequence[Procedure], said: Mapping[str, Said], clusterer: Callable) -> dict:
    """Return the explorer's data.

    Parameters
    ----------
    procedures : sequence of Procedure
        With gold changes.
    said : mapping
        Table row -> its predictions file, which has every step of `procedures`.
    clusterer : callable
        Of the cluster-based metric, on both sides.

    Returns
    -------
    dict
        `models`: name, what stands behind it, file and the six signatures. `procedures`: goal and steps; a step has
        number, text, gold sentences and, for each model in order, its distinct sentences, for each match the `best`
        partners (positions) and the `clusters` assigned to one another (positions in `said`, in gold, match), and its
        six (P, R, F1).
    """
    gold = from_procedures(procedures)
    files = {name: read_scored(found.path) for name, found in said.items()}
    for file in files.values():
        align(file, gold)
    scores = {name: six_f1s(file, gold, "sample/openpi-c/test", clusterer) for name, file in files.items()}
    places = {identifier: index for index, identifier in enumerate(gold.sentences)}
    models = [
        {
            "name": name,
            "behind": found.model,
            "file": shown(found.path),
            "signatures": {key: s.signature for key, s in scores[name].items()},
        }
        for name, found in said.items()
    ]
    rows = []
    for procedure in procedures:
        steps = []
        for step in procedure.steps:
            identifier = step_id(procedure.id, step.number)
            own = [
                _said(files[name], gold, identifier, clusterer)
                | {"scores": {key: s.per_step[places[identifier]].tolist() for key, s in scores[name].items()}}
                for name in said
            ]
            steps.append(
                {
                    "number": step.number,
                    "text": step.text,
                    "gold": without_no_change([gold.sentences[identifier]])[0],
                    "models": own,
                }
            )
        rows.append({"goal": procedure.goal, "steps": steps})
    return {"models": models, "procedures": rows}


def _name(metrics: Mapping, path: Path) -> str:
    """Return what a predictions file is called."""
    parameters = metrics["parameters"]
    row = parameters["memory_row"] if path.name.startswith("memory_") else metrics["row"]
    extra = ["original OpenPI"] if metrics["dataset"] == "openpi" else []
    extra += [parameters["ablation"]] if parameters.get("ablation") else []
    return f"{row}, {', '.join(extra)}" if extra else row


def _said(file: ScoredFile, gold: ScoredFile, identifier: str, clusterer: Callable) -> dict:
    """Return what one model said about one step and what that was matched with."""
    truth, answers = without_no_change([side.sentences[identifier] for side in (gold, file)])
    said = list(dict.fromkeys(answers))
    return {
        "said": said,
        "repeated": len(answers) - len(said),
        "best": {match: best_partners(said, truth, match) for match in MATCHES},
        "clusters": {
            match: [
                ([said.index(sentence) for sentence in ours], [truth.index(sentence) for sentence in theirs], score)
                for ours, theirs, score in cluster_pairs(said, truth, match, clusterer)
            ]
            for match in MATCHES
        },
    }
