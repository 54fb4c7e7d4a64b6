"""Every finished run of `07_token_questeval`: the cells of the table on SummEval, and all of our numbers."""

from collections.abc import Mapping

import pandas as pd

from lib import published, results

Cells = dict[tuple[str, str], float]
METHODS = {"spearman": "Spearman", "kendall": "Kendall"}
HEADLINE = "fill_mask"  # the run whose scores stand in the table


def finished(profile: str) -> dict[str, dict]:
    """Return the metrics of every finished run by its name."""
    runs = results.finished_runs(profile, "07_token_questeval")
    return {run: results.load(profile, "07_token_questeval", run) for run in runs}


def summeval_cells(runs: Mapping[str, dict]) -> tuple[Cells, dict[tuple[str, str], str]]:
    """Return the headline run's correlations by summary, and their 95% intervals over articles."""
    if HEADLINE not in runs:
        return {}, {}
    known = published.paper_numbers()["summeval"]["rows"]
    found = {
        (record["metric"], f"{record['dimension']}, {METHODS[record['method']]}"): record
        for record in runs[HEADLINE]["scores"]["correlations"]
        if record["level"] == "summary" and record["method"] in METHODS and record["metric"] in known
    }
    defined = {cell: record for cell, record in found.items() if record["coefficient"] is not None}
    return (
        {cell: record["coefficient"] for cell, record in defined.items()},
        {cell: f"{record['low']:.3f} to {record['high']:.3f}" for cell, record in defined.items()},
    )


def model_name(runs: Mapping[str, dict]) -> dict[str, str]:
    """Return what stands behind the rows: model, size and training for ours, the rows for all."""
    if HEADLINE not in runs:
        return {}
    metrics = runs[HEADLINE]
    rows = f"{metrics['rows']['articles']} articles"
    known = published.paper_numbers()["summeval"]["rows"]
    size = f"{metrics['parameters_of_model'] / 1e6:,.1f}M"
    ours = f"{metrics['row']}, {size}, {_updates(metrics):,} updates, {rows}"
    return dict.fromkeys(known, rows) | {"Token QuestEval": ours}


def correlations_frame(runs: Mapping[str, dict]) -> pd.DataFrame:
    """Return every run's correlations with SummEval's judgements: a row a metric and level, a column a dimension."""
    frames = [pd.DataFrame(metrics["scores"]["correlations"]).assign(run=run) for run, metrics in runs.items()]
    if not frames:
        return pd.DataFrame()
    frame = pd.concat(frames, ignore_index=True)
    keys = ["run", "metric", "level", "method"]
    wide = frame.pivot(index=keys, columns="dimension", values="coefficient")
    order = frame[keys].drop_duplicates()
    return wide.loc[pd.MultiIndex.from_frame(order)].astype(float).reset_index()


def ranked_frame(runs: Mapping[str, dict]) -> pd.DataFrame:
    """Return every run's tau on better-or-worse translations, a row a metric."""
    frames = [pd.DataFrame(metrics["scores"]["ranked"]).assign(run=run) for run, metrics in runs.items()]
    if not frames:
        return pd.DataFrame()
    frame = pd.concat(frames, ignore_index=True)
    return frame[["run", *frame.columns.drop("run")]]


def accuracy_frame(runs: Mapping[str, dict]) -> pd.DataFrame:
    """Return how often each run's model fills held-out masks right, in percent, with the other text and without."""
    rows = []
    for run, metrics in runs.items():
        shares = {name: value if name == "n" else 100 * value for name, value in metrics["fill_accuracy"].items()}
        rows.append({"run": run, "model": metrics["row"], "updates": _updates(metrics), **shares})
    return pd.DataFrame(rows)


def _updates(metrics: Mapping) -> int:
    """Return how long a model was trained here; 0 for one that was only scored."""
    return metrics["training"]["updates"] if metrics["training"] else 0
