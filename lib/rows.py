"""The rows that trained runs fill: `trained_rows` reads them, the others make cells and tables of them."""

import statistics
from collections.abc import Mapping, Sequence

import pandas as pd

from lib import published, results
from lib.intervals import bootstrap_interval
from lib.paired import by_step

#: Names as they stand in tables; what replaces a paper's model says so.
MODELS = {
    "warm:minilm": "BART from MiniLM for BART-large",
    "wheel:smollm2": "SmolLM2-135M for GPT-2 medium",
    "tiny": "random BART",
    "tiny-causal": "random GPT-2",
}
#: What runs of the same row may differ in: the seed, the names of the runs of that seed which they read, and what is
#: studied beside the row.
FREE = {"run", "seed", "keep", "first", "memory_first", "beside", "openpi_run", "study", "study_steps", "study_seeds"}
FREE |= {"length_penalties"}
#: Table 4 has another name for one row of Table 3.
OURS = {"Ours (EMem + ECond)": "BART + EMem + ECond"}


def trained_rows(profile: str, notebooks: Sequence[str], dataset: str) -> dict[str, dict]:
    """Return, for each table row, the metrics of the finished run that fills it.

    Runs of the same row that differ in their seed stand together: the lowest seed's metrics, the others' under
    `repeats`.

    Raises
    ------
    ValueError
        If two runs fill the same row and differ in more than the seed, or not in it.
    """
    rows: dict[str, list[dict]] = {}
    for notebook in notebooks:
        for run in results.finished_runs(profile, notebook):
            metrics = results.load(profile, notebook, run)
            if metrics["dataset"] != dataset or metrics["parameters"].get("ablation"):
                continue
            # A run may fill several rows, with what differs between them.
            for row, own in metrics.get("rows", {metrics["row"]: {}}).items():
                rows.setdefault(row, []).append(metrics | own)
    return {row: _repeated(row, found) for row, found in rows.items()}


def trained_cells(rows: Mapping[str, dict]) -> tuple[dict[tuple[str, str], float], dict[tuple[str, str], str]]:
    """Return cells and intervals of the trained rows; with several seeds of the mean over them."""
    cells, intervals = {}, {}
    for row, metrics in rows.items():
        cells |= score_cells(row, metrics["scores"]["model"])
        intervals |= score_intervals(row, metrics["scores"]["model"])
        if metrics.get("repeats"):
            steps = by_step(row, metrics)
            procedures = [name.rsplit("||", 1)[0] for name in steps["ids"]]
            for name in metrics["scores"]["model"]:
                f1 = [values[2] for values in steps[name]]
                low, high = bootstrap_interval(f1, procedures)
                cells[row, name] = 100 * sum(f1) / len(f1)
                intervals[row, name] = f"{100 * low:.1f} to {100 * high:.1f}"
    return cells, intervals


def seed_deviations(rows: Mapping[str, dict]) -> dict[tuple[str, str], float]:
    """Return the standard deviation over seeds (n - 1, in percent) of the cells that several runs fill."""
    return {
        (row, name): statistics.stdev(100 * run["scores"]["model"][name]["f1"] for run in runs)
        for row, metrics in rows.items()
        for name in metrics["scores"]["model"]
        if len(runs := _seeds(metrics)) > 1
    }


def other_data(rows: Mapping[str, dict]) -> dict[str, str]:
    """Return `other data` for the rows that were not scored on a public test set."""
    return {row: "other data" for row, metrics in rows.items() if metrics["data"] != f"{metrics['dataset']}/test"}


def score_cells(row: str, scores: Mapping[str, Mapping]) -> dict[tuple[str, str], float]:
    """Return a row's cells in percent from the scores in a run's `metrics.json`."""
    return {(row, name): 100 * score["f1"] for name, score in scores.items()}


def score_intervals(row: str, scores: Mapping[str, Mapping]) -> dict[tuple[str, str], str]:
    """Return a row's 95% intervals over procedures, in percent."""
    return {(row, name): score["interval"] for name, score in scores.items()}


def model_names(rows: Mapping[str, dict]) -> dict[str, str]:
    """Return what stands behind each trained row: model, size, updates. What replaces a paper's model says so."""
    names = {
        row: f"{MODELS.get(m['parameters']['model'], m['parameters']['model'])}, "
        f"{m['parameters_of_model'] / 1e6:.0f}M, {_denoising(m)}{m['training']['updates']:,} updates"
        + (f", mean of {1 + len(m['repeats'])} seeds" if m.get("repeats") else "")
        for row, m in rows.items()
    }
    return names | {table4: names[row] for table4, row in OURS.items() if row in names}


def strategy_cells(rows: Mapping[str, dict]) -> dict[tuple[str, str], float]:
    """Return Table 4's cells, cluster-based BLEU F1 in percent, means over seeds of training and of sampling."""
    cells = {}
    for row, columns in published.paper_numbers()["table4"]["rows"].items():
        for run in _seeds(rows.get(OURS.get(row, row), {})):
            for record in run.get("study", {}).get("strategies", ()):
                if record["way"] in columns:
                    cells.setdefault((row, record["way"]), []).append(100 * record["cluster_bleu_f1"])
    return {cell: sum(values) / len(values) for cell, values in cells.items()}


def outputs_cells(rows: Mapping[str, dict]) -> dict[tuple[str, str], float]:
    """Return the mean outputs a step of the rows for which the paper prints it (sec. 5), means over seeds."""
    known = published.paper_numbers()["outputs_per_step"]["rows"].keys() & rows.keys()
    return {
        (row, "outputs"): statistics.fmean(run["decoding"]["outputs_per_step"] for run in _seeds(rows[row]))
        for row in known
    }


def models_frame(*several: Mapping[str, dict]) -> pd.DataFrame:
    """Return a line a run that fills a row, of several data sets: model, size, training, outputs, baseline."""
    columns = (
        "row",
        "data",
        "model",
        "parameters (M)",
        "updates",
        "minutes",
        "tokens trained",
        "outputs a step",
        "distinct",
        "ROUGE-L F1",
        "majority template",
    )
    found = [
        (
            row,
            m["data"],
            MODELS.get(m["parameters"]["model"], m["parameters"]["model"]),
            m["parameters_of_model"] / 1e6,
            m["training"]["updates"],
            m["training"]["wall_time_seconds"] / 60,
            f"{m['training']['tokens']:,}",
            m["decoding"]["outputs_per_step"],
            m["decoding"]["distinct_per_step"],
            100 * m["scores"]["model"]["original_rouge_l"]["f1"],
            100 * m["scores"]["majority_template"]["original_rouge_l"]["f1"],
        )
        for rows in several
        for row, metrics in rows.items()
        for m in _seeds(metrics)
    ]
    return pd.DataFrame(found, columns=columns)


def ablation_frame(profile: str) -> pd.DataFrame:
    """Return a row a run of `04_emem` on OpenPI-C: what was changed, how long it trained, F1 with either history.

    Columns are the dev loss (nats a token) and F1 on test in percent: ROUGE-L with predicted and with gold history,
    and cluster-based BLEU.
    """
    rows = []
    for run in results.finished_runs(profile, "04_emem"):
        metrics = results.load(profile, "04_emem", run)
        if metrics["dataset"] != "openpi-c":
            continue
        training, scores = metrics["training"], metrics["scores"]
        rows.append(
            {
                "what is changed": metrics["parameters"]["ablation"] or f"nothing ({metrics['row']})",
                "updates": training["updates"],
                "parameters (M)": metrics["parameters_of_model"] / 1e6,
                "dev loss": training["best_dev_loss"],
                "outputs a step": metrics["decoding"]["outputs_per_step"],
                **{
                    f"{metric}, {history} history": 100 * scores[who][key]["f1"]
                    for metric, key in (("original ROUGE-L", "original_rouge_l"), ("cluster BLEU", "cluster_bleu"))
                    for history, who in (("predicted", "model"), ("gold", "gold_history"))
                },
            }
        )
    return pd.DataFrame(rows)


def rates_frame(profile: str) -> pd.DataFrame:
    """Return the rates of hallucinated changes that the runs of `05_econd` counted, in percent; empty without one."""
    frames = []
    for run in results.finished_runs(profile, "05_econd"):
        metrics = results.load(profile, "05_econd", run)
        if metrics["rates"]:
            frames.append(pd.DataFrame(metrics["rates"]).assign(run=run))
    if not frames:
        return pd.DataFrame()
    frame = pd.concat(frames, ignore_index=True)
    frame[["share", "low", "high"]] = 100 * frame[["share", "low", "high"]].astype(float)
    return frame.rename(columns={"share": "share (%)"})


def _repeated(row: str, runs: Sequence[dict]) -> dict:
    """Return the run of the lowest seed with those of the other seeds beside it."""
    first, *others = sorted(runs, key=lambda metrics: metrics["parameters"].get("seed", 0))
    seeds = {first["parameters"].get("seed", 0)}
    for other in others:
        changed = [
            name
            for name in first["parameters"].keys() | other["parameters"].keys()
            if name not in FREE and first["parameters"].get(name) != other["parameters"].get(name)
        ]
        seed = other["parameters"].get("seed", 0)
        if changed or seed in seeds or first["notebook"] != other["notebook"]:
            names = [f"{run['notebook']}/{run['parameters']['run']}" for run in (other, first)]
            why = f"differ in {', '.join(sorted(changed))}" if changed else "have the same seed"
            raise ValueError(
                f"{' and '.join(names)} both fill the row {row!r} and {why}: give one of them another row, or, to "
                "have means over seeds, let them differ in nothing but the seed"
            )
        seeds.add(seed)
    return first | {"repeats": others} if others else first


def _seeds(metrics: dict) -> list[dict]:
    """Return the metrics of every run that fills a row, the lowest seed's first."""
    return [metrics, *metrics.get("repeats", ())]


def _denoising(metrics: Mapping) -> str:
    """Return how long a model was warmed up, as it stands before its updates."""
    warm = metrics["training"].get("denoising")
    return f"{warm['updates']:,} updates of denoising and " if warm else ""
