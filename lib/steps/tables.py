"""Every finished run of `06_steps` side by side: the cells of the paper's tables, all of our numbers, the scaling."""

from collections.abc import Mapping

import pandas as pd

from lib import published, results
from lib.steps.sets import RELEASED
from lib.steps.study import NUMBERS, over_seeds

Cells = dict[tuple[str, str], float]


def runs_by_row(profile: str) -> dict[str, dict]:
    """Return the metrics of every finished run by its row.

    Raises
    ------
    ValueError
        If two runs fill the same row.
    """
    rows: dict[str, dict] = {}
    for run in results.finished_runs(profile, "06_steps"):
        metrics = results.load(profile, "06_steps", run)
        if metrics["row"] in rows:
            raise ValueError(f"06_steps/{run} and another run both fill the row {metrics['row']!r}")
        rows[metrics["row"]] = metrics
    return rows


def choice_cells(rows: Mapping[str, dict]) -> tuple[Cells, dict[tuple[str, str], str]]:
    """Return accuracies (in percent) on the released choices under the paper's rule, and their intervals."""
    known = published.paper_numbers()["steps_multi_choice"]["rows"].keys()
    first = {
        row: metrics["scores"]["multi_choice"][RELEASED][0]
        for row, metrics in rows.items()
        if row in known and RELEASED in metrics["scores"]["multi_choice"]
    }
    return (
        {(row, "accuracy"): record["accuracy (%)"] for row, record in first.items()},
        {(row, "accuracy"): record["95% interval"] for row, record in first.items()},
    )


def classification_cells(rows: Mapping[str, dict]) -> Cells:
    """Return the cells of what the paper states about classification, where the runs that it needs have finished."""
    zero = {row: _mean(metrics, 0) for row, metrics in rows.items() if RELEASED in metrics["scores"]["classification"]}
    cells = {}
    for row, columns in published.paper_numbers()["steps_classification"]["rows"].items():
        for column in columns:
            if row.endswith(", zero-shot") and " less " not in row and (model := row.split(",")[0]) in zero:
                cells[row, column] = zero[model][column]
    for row, column, more, less in (
        ("BLOOM-7B1 less BLOOM-3B, zero-shot", "g_mean", "BLOOM-7B1", "BLOOM-3B"),
        ("GPT2-L fine-tuned less zero-shot", "specificity", "GPT2-L fine-tuned", "GPT2-L"),
    ):
        if more in zero and less in zero:
            cells[row, column] = zero[more][column] - zero[less][column]
    if rows:
        shares = next(iter(rows.values()))["class_shares"]["train"]
        cells |= {("classes", label): shares[label] for label in ("negative", "positive")}
    return cells


def all_choices(rows: Mapping[str, dict]) -> pd.DataFrame:
    """Return accuracy in percent by row and set, a column a rule; the paper's comes first."""
    made = [
        {"row": row, "set": name, "rows": records[0]["rows"]} | {r["rule"]: r["accuracy (%)"] for r in records}
        for row, metrics in rows.items()
        for name, records in metrics["scores"]["multi_choice"].items()
    ]
    return pd.DataFrame(made)


def all_classified(rows: Mapping[str, dict]) -> pd.DataFrame:
    """Return means over seeds in percent, with their deviation, by row, set, demonstrations and rule of decision."""
    frames = [
        over_seeds(pd.DataFrame(records).astype(dict.fromkeys(NUMBERS, float))).assign(row=row, set=name)
        for row, metrics in rows.items()
        for name, records in metrics["scores"]["classification"].items()
    ]
    if not frames:
        return pd.DataFrame()
    frame = pd.concat(frames, ignore_index=True)
    return frame[["row", "set", *frame.columns.drop(["row", "set"])]]


def model_names(rows: Mapping[str, dict]) -> dict[str, str]:
    """Return what stands behind each row: its size, and how long it was trained here."""
    return {
        row: f"{metrics['parameters_of_model'] / 1e6:,.0f}M"
        + (f", {metrics['training']['updates']:,} updates" if metrics["training"] else ", not trained here")
        for row, metrics in rows.items()
    }


def scaling(rows: Mapping[str, dict]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return published and own points for `lib.plots.scaling`; fine-tuned models are left out."""
    entry = published.paper_numbers()["steps_multi_choice"]
    families = {"GPT2": "GPT-2", "OPT": "OPT", "BLOOM": "BLOOM"}
    columns = ["family", "model", "millions", "accuracy"]
    theirs = [
        (families[row.split("-")[0]], row, entry["millions"][row], float(cell["accuracy"]))
        for row, cell in entry["rows"].items()
        if row in entry["millions"]
    ]
    cells, _ = choice_cells(rows)
    ours = [
        (rows[row]["family"], row, rows[row]["parameters_of_model"] / 1e6, value)
        for (row, _), value in cells.items()
        if not rows[row]["training"]
    ]
    return pd.DataFrame(theirs, columns=columns), pd.DataFrame(ours, columns=columns)


def _mean(metrics: dict, shots: int) -> dict[str, float]:
    """Return a run's numbers on the released questions in percent, under the paper's rule, means over seeds."""
    frame = pd.DataFrame(metrics["scores"]["classification"][RELEASED])
    kept = frame[(frame.shots == shots) & (frame.decision == "P(Yes) > P(No)")]
    return (100 * kept[NUMBERS].astype(float).mean()).to_dict()
