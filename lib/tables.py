"""The papers' tables with ours beside them: `comparison` (a row a cell), `wide` (as printed), `readme_block`."""

from collections.abc import Iterable, Mapping, Sequence

import pandas as pd

from lib import results
from lib.paths import OUTPUTS, ROOT

#: Names as they stand in tables; what replaces a paper's model says so.
MODELS = {
    "warm:minilm": "BART from MiniLM for BART-large",
    "wheel:smollm2": "SmolLM2-135M for GPT-2 medium",
    "tiny": "random BART",
    "tiny-causal": "random GPT-2",
}
#: Table 4 has another name for one row of Table 3.
OURS = {"Ours (EMem + ECond)": "BART + EMem + ECond"}
TANDON = "GPT-2 (Tandon et al., 2020)"
#: Digits of a table's numbers in the summary; two in the others.
DIGITS = {"Table 1": 0, "SummEval": 3}
README_START, README_END = "<!-- results: made by `make readme` -->", "<!-- end of results -->"


def comparison(
    table: str,
    ours: Mapping[tuple[str, str], float],
    otherwise: str = "",
    intervals: Mapping[tuple[str, str], str] | None = None,
    by_row: Mapping[str, str] | None = None,
    models: Mapping[str, str] | None = None,
    rows: Iterable[str] = (),
) -> pd.DataFrame:
    """Return one row for every cell of a paper's table: paper, ours, difference, interval, verdict, model, note.

    Parameters
    ----------
    table : str
        Its name in `params/paper_numbers.yaml`.
    ours : mapping from (row, column) to float
        In the table's unit; an absent cell is `not run`.
    otherwise : str
        Why ours cannot be held against the paper's (`other data`, `other model`); empty where it can.
    intervals : mapping, optional
        95% intervals over procedures, for the cells that have one.
    by_row : mapping, optional
        Rows to which another `otherwise` applies: Table 3's first row needs no model.
    models : mapping, optional
        What stands behind our numbers of a row, see `model_names`.
    rows : iterable of str, optional
        Rows that `ours` may have beside the paper's: they follow, without a paper's number.

    Raises
    ------
    KeyError
        If `ours` has a cell that the paper's table has not, `rows` aside.
    """
    entry = results.paper_numbers()[table]
    cells = [(row, column) for row, columns in entry["rows"].items() for column in columns]
    known = list(dict.fromkeys(column for _, column in cells))
    own = [row for row in rows if row not in entry["rows"]]
    cells += [(row, column) for row in own for column in known]
    if unknown := [cell for cell in ours if cell not in cells]:
        raise KeyError(f"{table} has no cell {unknown[0]}; rows: {', '.join(entry['rows'])}")
    notes = entry.get("notes", {})
    found = []
    for row, column in cells:
        paper, value = None if row in own else results.published(table, row, column), ours.get((row, column))
        reason = (by_row or {}).get(row, otherwise)
        said = results.verdict(value, paper, reason)
        found.append(
            {
                "row": row,
                "column": column,
                "paper": "-" if paper is None else paper.printed,
                "ours": value,
                "difference": None if value is None or paper is None or reason else value - paper.value,
                "95% interval": (intervals or {}).get((row, column), ""),
                "verdict": said,
                "model": (models or {}).get(row, "") if value is not None else "",
                "note": notes.get(f"{row} / {column}", "") if value is not None and not reason else "",
            }
        )
    return pd.DataFrame(found)


def wide(frame: pd.DataFrame, digits: int = 2) -> pd.DataFrame:
    """Return a comparison in the paper's shape, each cell `ours (paper)`."""
    order = {name: list(dict.fromkeys(frame[name])) for name in ("row", "column")}
    cells = frame.assign(
        cell=[f"{shown(ours, digits)} ({paper})" for ours, paper in zip(frame.ours, frame.paper, strict=True)]
    )
    return cells.pivot(index="row", columns="column", values="cell").loc[order["row"], order["column"]]


def shown(value: float | None, digits: int = 2) -> str:
    """Return a number for print, or `not run`."""
    return results.NOT_RUN if value is None or pd.isna(value) else f"{value:,.{digits}f}"


def table1_cells(metrics: dict | None) -> dict[tuple[str, str], float]:
    """Return Table 1's cells from the data audit's metrics; none where it has not been run."""
    counts = metrics["scores"]["counts"] if metrics else {}
    return {(split, column): number for split, row in counts.items() for column, number in row.items()}


def score_cells(row: str, scores: Mapping[str, Mapping]) -> dict[tuple[str, str], float]:
    """Return a row's cells in percent from the scores in a run's `metrics.json`."""
    return {(row, name): 100 * score["f1"] for name, score in scores.items()}


def score_intervals(row: str, scores: Mapping[str, Mapping]) -> dict[tuple[str, str], str]:
    """Return a row's 95% intervals over procedures, in percent."""
    return {(row, name): score["interval"] for name, score in scores.items()}


def trained_rows(profile: str, notebooks: Sequence[str], dataset: str) -> dict[str, dict]:
    """Return, for each table row, the metrics of the finished run that fills it.

    Raises
    ------
    ValueError
        If two runs fill the same row.
    """
    rows: dict[str, tuple[str, dict]] = {}
    for notebook in notebooks:
        for run in results.finished_runs(profile, notebook):
            metrics = results.load(profile, notebook, run)
            if metrics["dataset"] != dataset or metrics["parameters"].get("ablation"):
                continue
            # A run may fill several rows, with what differs between them.
            for row, own in metrics.get("rows", {metrics["row"]: {}}).items():
                if row in rows:
                    raise ValueError(f"{notebook}/{run} and {rows[row][0]} both fill the row {row!r}")
                rows[row] = (f"{notebook}/{run}", metrics | own)
    return {row: metrics for row, (_, metrics) in rows.items()}


def trained_cells(rows: Mapping[str, dict]) -> tuple[dict[tuple[str, str], float], dict[tuple[str, str], str]]:
    """Return cells and intervals of the trained rows."""
    cells, intervals = {}, {}
    for row in rows:
        cells |= score_cells(row, rows[row]["scores"]["model"])
        intervals |= score_intervals(row, rows[row]["scores"]["model"])
    return cells, intervals


def other_data(rows: Mapping[str, dict]) -> dict[str, str]:
    """Return `other data` for the rows that were not scored on a public test set."""
    return {row: "other data" for row, metrics in rows.items() if metrics["data"] != f"{metrics['dataset']}/test"}


def model_names(rows: Mapping[str, dict]) -> dict[str, str]:
    """Return what stands behind each trained row: model, size, updates. What replaces a paper's model says so."""
    names = {
        row: f"{MODELS.get(m['parameters']['model'], m['parameters']['model'])}, "
        f"{m['parameters_of_model'] / 1e6:.0f}M, {_denoising(m)}{m['training']['updates']:,} updates"
        for row, m in rows.items()
    }
    return names | {table4: names[row] for table4, row in OURS.items() if row in names}


def _denoising(metrics: Mapping) -> str:
    """Return how long a model was warmed up, as it stands before its updates."""
    warm = metrics["training"].get("denoising")
    return f"{warm['updates']:,} updates of denoising and " if warm else ""


def outputs_cells(rows: Mapping[str, dict]) -> dict[tuple[str, str], float]:
    """Return the mean outputs a step of the rows for which the paper prints it (sec. 5)."""
    known = results.paper_numbers()["outputs_per_step"]["rows"].keys() & rows.keys()
    return {(row, "outputs"): rows[row]["decoding"]["outputs_per_step"] for row in known}


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


def strategy_cells(rows: Mapping[str, dict]) -> dict[tuple[str, str], float]:
    """Return Table 4's cells, cluster-based BLEU F1 in percent, means over seeds where decoding samples."""
    cells = {}
    for row, columns in results.paper_numbers()["table4"]["rows"].items():
        for record in rows.get(OURS.get(row, row), {}).get("study", {}).get("strategies", ()):
            if record["way"] in columns:
                cells.setdefault((row, record["way"]), []).append(100 * record["cluster_bleu_f1"])
    return {cell: sum(values) / len(values) for cell, values in cells.items()}


def models_frame(*several: Mapping[str, dict]) -> pd.DataFrame:
    """Return what stands behind the trained rows of several data sets: model, size, training, outputs, baseline."""
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
        for row, m in rows.items()
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


def bcubed_frame(metrics: dict | None) -> pd.DataFrame:
    """Return BCubed of our clusterer beside the paper's; gold differ, so nothing is compared."""
    ((name, paper),) = results.paper_numbers()["bcubed"]["rows"].items()
    rows = [{"clusterer": name, "gold": "20 processes clustered by hand (not released)", "source": "paper", **paper}]
    if metrics:
        found = metrics["scores"]["bcubed"]
        for mean in ("pooled over sentences", "mean over steps"):
            numbers = {key: f"{100 * value:.2f}" for key, value in found[mean].items()}
            rows.append({"clusterer": found["clusterer"], "gold": found["gold"], "source": f"ours, {mean}", **numbers})
    return pd.DataFrame(rows)


def save(run: results.Run, name: str, frame: pd.DataFrame, digits: int = 2) -> None:
    """Write a table under `outputs/<profile>/tables/`: CSV (floats in full), Markdown and LaTeX (with `digits`)."""
    run.save(f"tables/{name}.csv", frame.to_csv(index=False, lineterminator="\n"))
    run.save(f"tables/{name}.md", to_markdown(frame, digits))
    run.save(f"tables/{name}.tex", to_latex(frame, digits))


def to_markdown(frame: pd.DataFrame, digits: int = 2) -> str:
    """Return a frame as a Markdown table; floats with `digits`, nothing for what is absent."""
    return _printed(frame, digits).to_markdown(index=False, disable_numparse=True) + "\n"


def to_latex(frame: pd.DataFrame, digits: int = 2) -> str:
    """Return a frame as a LaTeX table with booktabs' rules; floats with `digits`, nothing for what is absent."""
    styler = _printed(frame, digits).style.hide(axis="index").format(escape="latex")
    return styler.format_index(escape="latex", axis="columns").to_latex(hrules=True)


def _printed(frame: pd.DataFrame, digits: int) -> pd.DataFrame:
    """Return a frame whose floats are text."""
    printed = frame.copy()
    for name in frame.columns:
        if pd.api.types.is_float_dtype(frame[name]):
            printed[name] = ["" if pd.isna(value) else f"{value:,.{digits}f}" for value in frame[name]]
    return printed


def summary(comparisons: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return a row for each row of each table: paper, ours and the verdicts of its cells, counted."""
    rows = []
    for table, frame in comparisons.items():
        for row, cells in frame.groupby("row", sort=False):
            verdicts = cells.verdict.value_counts(sort=False)
            rows.append(
                {
                    "table": table,
                    "row": row,
                    "columns": ", ".join(cells.column),
                    "paper": " / ".join(cells.paper),
                    "ours": _joined(cells.ours, DIGITS.get(table, 2)),
                    "verdict": ", ".join(f"{name} ({number})" for name, number in verdicts.items()),
                    "our model": next(filter(None, cells.model), ""),
                }
            )
    return pd.DataFrame(rows)


def readme_block(profile: str = "laptop") -> str:
    """Return the README's table as the last run of `08_tables` wrote it."""
    return (OUTPUTS / profile / "tables" / "summary.md").read_text(encoding="utf-8")


def update_readme() -> None:
    """Put the laptop profile's summary between the README's markers."""
    path = ROOT / "README.md"
    head, rest = path.read_text(encoding="utf-8").split(README_START)
    _, tail = rest.split(README_END)
    with results.atomic(path) as temporary:
        temporary.write_text(f"{head}{README_START}\n\n{readme_block()}\n{README_END}{tail}", encoding="utf-8")


def _joined(values: Sequence[float | None], digits: int) -> str:
    """Return a row's numbers, or one `not run` where there is none."""
    if pd.isna(pd.Series(values, dtype=float)).all():
        return results.NOT_RUN
    return " / ".join(shown(value, digits) for value in values)


if __name__ == "__main__":
    update_readme()
