"""The page: `render` puts tables, figures, the explorer and every run's provenance into one HTML text."""

import base64
import json
import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib import resources
from pathlib import Path

import jinja2
import pandas as pd

from lib import published, results, tables
from lib.data import load_openpi_c
from lib.data.registry import FILES
from lib.paths import OUTPUTS, SAMPLE, run_dir, shown
from lib.report.explorer import explored, said_files
from lib.rows import OURS, trained_rows
from lib.steps import tables as steps_tables

_SOURCES = ("page.html", "page.css", "page.js")
#: File under `tables/` -> its title, in the page's order; other files follow under their own names.
TITLES = {
    "table2": "Table 2: OpenPI-C",
    "paired": "Each row beside the row that it adds something to",
    "models": "The models behind our rows",
    "table3": "Table 3: the original OpenPI",
    "table4": "Table 4: decoding strategies, cluster-based BLEU F1",
    "ablations": "Ablations of the entity memory",
    "outputs_per_step": "Outputs a step (sec. 5)",
    "hallucinations": "Changes that the text does not carry (%)",
    "table1": "Table 1: the two data sets",
    "bcubed": "Appendix A: agreement of the clusterer, BCubed",
    "parameters": "Sizes of the paper's models, millions of parameters",
    "steps_multi_choice": "STEPS, multi-choice accuracy",
    "steps_classification": "STEPS, classification",
    "steps_choices_by_rule": "STEPS, choices under every rule",
    "steps_classification_by_shots": "STEPS, classification by demonstrations",
    "summeval": "Token QuestEval, SummEval",
    "questeval_correlations": "Token QuestEval, all correlations",
    "questeval_ranked": "Token QuestEval, better-or-worse translations",
    "questeval_fill_accuracy": "Token QuestEval, does the model read the other text?",
}
#: Digits of a table's numbers; two in the others.
DIGITS = {"table1": 0, "parameters": 1, "steps_multi_choice": 1, "steps_classification": 1, "summeval": 3}
DIGITS |= {"questeval_correlations": 3, "questeval_ranked": 3, "questeval_fill_accuracy": 3}
#: Start of a figure's name -> what it shows, in the page's order; others follow under their own names.
CAPTIONS = {
    "method": "The method (Figures 1 and 3): a step, what memory holds, what both stages said",
    "two_stages": "Both stages taken apart",
    "grounded": "Changes that the text does not carry (Figure 4)",
    "length_penalty": "Precision, recall and outputs a step by length penalty (Figure 6)",
    "repetition": "Both F1s when predictions are repeated with small rewordings",
    "attention": "What the decoder looks at: tokens of the input and slots of memory",
    "slots_over_steps": "The memory grows with the steps",
    "loss_curve": "Loss and dev score by update",
    "distributions": "Lengths and numbers of steps and state changes",
    "issues": "The three kinds of issues in OpenPI (Figure 2)",
    "flow_chart": "What the stages of cleaning leave",
    "screen": "A screen of the annotation interface (Figure 5)",
    "steps_scaling": "STEPS accuracy by model size",
    "log_odds": "Log-odds of the answer Yes, by class",
    "heat": "Two texts coloured by how well each token could be filled from the other",
    "agreement": "Token QuestEval beside people's judgements",
}


def render(profile: str, clusterer: Callable) -> str:
    """Return the report of a profile as one HTML page that needs no network.

    Parameters
    ----------
    profile : str
        Its tables must have been written.
    clusterer : callable
        Of the cluster-based scores in the explorer, which shows what models said about the sample's test split.

    Raises
    ------
    ValueError
        If a finished run's `metrics.json` is damaged or its predictions of the sample lack steps.
    """
    source = {name: (resources.files(__package__) / name).read_text(encoding="utf-8") for name in _SOURCES}
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    frames = dict(_frames(profile))
    anchors = _anchors(profile)
    said = said_files(profile)
    sample = load_openpi_c("test", root=SAMPLE)
    return environment.from_string(source["page.html"]).render(
        profile=profile,
        verdicts=_verdicts(frames),
        tables=[_table(name, frame, anchors) for name, frame in frames.items()],
        figures=list(_figures(profile)),
        runs=[_run(profile, notebook, run) for notebook, run in _finished(profile)],
        files=FILES,
        explored=_rounded(explored(sample, said, clusterer)) if said else None,
        clusterer=getattr(clusterer, "name", "custom"),
        style=source["page.css"],
        script=source["page.js"],
    )


def _frames(profile: str) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield the profile's tables in the page's order; empty ones and the summary of the others are left out."""
    paths = {path.stem: path for path in sorted((OUTPUTS / profile / "tables").glob("*.csv"))}
    for name in [*TITLES, *sorted(paths.keys() - TITLES.keys() - {"summary"})]:
        if name in paths and paths[name].read_text(encoding="utf-8").strip():
            yield name, pd.read_csv(paths[name], dtype={"paper": str}, keep_default_na=False, na_values=[""])


def _verdicts(frames: Mapping[str, pd.DataFrame]) -> dict[str, int]:
    """Return how many cells of the papers have each verdict."""
    compared = [frame.verdict for frame in frames.values() if {"paper", "verdict"} <= set(frame.columns)]
    return pd.concat(compared).value_counts().to_dict() if compared else {}


def _table(name: str, frame: pd.DataFrame, anchors: Mapping[tuple[str, str], str]) -> dict:
    """Return a table as the template wants it: columns, and rows of cells."""
    number = partial(tables.shown, digits=DIGITS.get(name, 2))
    compared = {"row", "column", "paper", "verdict"} <= set(frame.columns)
    if compared:
        columns = list(dict.fromkeys(frame.column))
        rows = [(row, [_cell(cell, number) for cell in own.itertuples()]) for row, own in _by_row(frame)]
    else:
        columns = list(frame.columns[1:])
        plain = frame.itertuples(index=False, name=None)
        rows = [
            (str(first), [{"ours": _plain(*cell, number)} for cell in zip(columns, rest, strict=True)])
            for first, *rest in plain
        ]
    return {
        "name": name,
        "title": TITLES.get(name, name),
        "first": frame.columns[0],
        "columns": [_spoken(column) for column in columns],
        "compared": compared,
        "rows": [{"name": row, "cells": cells, "run": anchors.get((name, row), "")} for row, cells in rows],
        "models": dict(frame.dropna(subset="model")[["row", "model"]].values) if compared and "model" in frame else {},
    }


def _spoken(column: str) -> str:
    """Return a column's name as it is read: `cluster_rouge_l` is `cluster ROUGE-L`."""
    return column.replace("rouge_l", "ROUGE-L").replace("bleu", "BLEU").replace("_", " ")


def _by_row(frame: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield the cells of each row; interval and difference get names that attributes can have."""
    renamed = frame.rename(columns={"95% interval": "interval", "sd over seeds": "spread"})
    return iter(renamed.groupby("row", sort=False))


def _cell(cell: tuple, number: Callable[[float], str]) -> dict:
    """Return a cell of a comparison."""
    spread = getattr(cell, "spread", math.nan)
    more = [cell.interval] if isinstance(cell.interval, str) else []
    more += [] if pd.isna(spread) else [f"standard deviation over seeds {number(spread)}"]
    more += [f"ours minus the paper's {number(cell.difference)}"] if cell.verdict == "differs" else []
    more += [cell.note] if isinstance(cell.note, str) else []
    return {"ours": number(cell.ours), "paper": cell.paper, "verdict": cell.verdict, "more": "; ".join(more)}


def _plain(column: str, value: object, number: Callable[[float], str]) -> str:
    """Return a value of a table that is no comparison."""
    if column == "metric":
        return _spoken(str(value))
    if isinstance(value, float):
        return "" if pd.isna(value) else number(value)
    return str(value)


def _anchors(profile: str) -> dict[tuple[str, str], str]:
    """Return, for a row of a table, the anchor of the run that its numbers come from."""
    several = {
        "table2": trained_rows(profile, ("03_baselines", "04_emem", "05_econd"), "openpi-c"),
        "table3": trained_rows(profile, ("03_baselines", "04_emem", "05_econd"), "openpi"),
        "steps_multi_choice": steps_tables.runs_by_row(profile),
    }
    several["models"] = several["paired"] = several["outputs_per_step"] = several["table2"]
    several["table4"] = several["table3"] | {
        name: several["table3"][row] for name, row in OURS.items() if row in several["table3"]
    }
    found = {
        (table, row): _anchor(metrics["notebook"], metrics["parameters"]["run"])
        for table, rows in several.items()
        for row, metrics in rows.items()
    }
    if results.finished_runs(profile, "01_data_audit"):
        audit = _anchor("01_data_audit", "audit")
        found |= {("table3", tables.TANDON): audit}
        found |= {("table1", row): audit for row in published.paper_numbers()["table1"]["rows"]}
    return found


def _anchor(notebook: str, run: str) -> str:
    """Return the id of a run's part of the page."""
    return f"run-{notebook}-{run}"


def _finished(profile: str) -> Iterator[tuple[str, str]]:
    """Yield the finished runs of a profile but the one that writes this page."""
    for folder in sorted((OUTPUTS / profile).glob("[0-9][0-9]_*")):
        if not folder.name.startswith("08_"):
            yield from ((folder.name, run) for run in results.finished_runs(profile, folder.name))


def _run(profile: str, notebook: str, run: str) -> dict:
    """Return a run's provenance: what it was made with, its signatures, its files, how to score it again."""
    metrics = results.load(profile, notebook, run)
    folder = run_dir(profile, notebook, run)
    training = metrics.get("training") or {}
    return {
        "anchor": _anchor(notebook, run),
        "name": f"{notebook}/{run}",
        "row": metrics.get("row", ""),
        "data": metrics.get("data", ""),
        "folder": shown(folder),
        "minutes": f"{metrics['wall_time_seconds'] / 60:,.1f}",
        "tokens": f"{training['tokens']:,}" if training.get("tokens") else "",
        "device": training.get("device", ""),
        "metrics": metrics,
        "signatures": list(_signatures(metrics["scores"])),
        "files": json.loads(next(folder.glob("manifest-*.json")).read_text(encoding="utf-8"))["files"],
        "commands": _commands(metrics, folder),
    }


def _signatures(scores: object, path: str = "") -> Iterator[dict]:
    """Yield every score in `metrics.json` that has a signature, with where it stands."""
    if isinstance(scores, dict) and "signature" in scores:
        yield {"path": path} | {key: scores.get(key) for key in ("precision", "recall", "f1", "interval", "signature")}
    elif isinstance(scores, dict):
        for key, value in scores.items():
            yield from _signatures(value, f"{path}.{key}" if path else str(key))


def _commands(metrics: Mapping, folder: Path) -> list[str]:
    """Return the commands that score a run's predictions again."""
    references = _references(metrics)
    if references is None:
        return []
    names = [name for name in ("predictions.jsonl", "memory_predictions.jsonl") if (folder / name).exists()]
    return [f".venv/bin/python -m lib.metrics {shown(folder / name)} {references}" for name in names]


def _references(metrics: Mapping) -> str | None:
    """Return the file of gold changes that a run was scored with, as `lib.metrics` takes it."""
    if "dataset" not in metrics:
        return None
    data, cleaned = metrics["parameters"]["data"], metrics["dataset"] == "openpi-c"
    if data == "public":
        return "openpi-c/test.jsonl.clustered" if cleaned else "openpi/gold/test/id_answers.jsonl"
    folder = shown(SAMPLE) if data == "sample" else data.rstrip("/")
    return f"{folder}/openpi-c/test.jsonl" if cleaned else f"{folder}/openpi/gold/test/id_answers.jsonl"


def _figures(profile: str) -> Iterator[dict]:
    """Yield the figures of finished runs in the order of `CAPTIONS`, each with its image as a data address."""
    paths = [path for pair in _finished(profile) for path in sorted(run_dir(profile, *pair).glob("*.png"))]
    paths += sorted((OUTPUTS / profile / "figures").glob("*.png"))
    places = {start: place for place, start in enumerate(CAPTIONS)}
    starts = {path: next((start for start in CAPTIONS if path.stem.startswith(start)), "") for path in paths}
    for path in sorted(paths, key=lambda path: places.get(starts[path], len(places))):
        image = base64.b64encode(path.read_bytes()).decode()
        caption = CAPTIONS.get(starts[path], path.stem)
        yield {"caption": caption, "file": shown(path), "image": f"data:image/png;base64,{image}"}


def _rounded(value: object) -> object:
    """Return the explorer's data with six digits: it is shown with two at most."""
    if isinstance(value, Mapping):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return round(value, 6) if isinstance(value, float) else value
