"""The papers' tables with ours beside them: `comparison` (a row a cell), `wide` (as printed), `readme_block`."""

from collections.abc import Iterable, Mapping, Sequence

import pandas as pd

from lib import published, results
from lib.paths import OUTPUTS, ROOT

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
    deviations: Mapping[tuple[str, str], float] | None = None,
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
    deviations : mapping, optional
        Standard deviations over seeds, see `seed_deviations`; without any the table has no such column.

    Raises
    ------
    KeyError
        If `ours` has a cell that the paper's table has not, `rows` aside.
    """
    entry = published.paper_numbers()[table]
    cells = [(row, column) for row, columns in entry["rows"].items() for column in columns]
    known = list(dict.fromkeys(column for _, column in cells))
    own = [row for row in rows if row not in entry["rows"]]
    cells += [(row, column) for row in own for column in known]
    if unknown := [cell for cell in ours if cell not in cells]:
        raise KeyError(f"{table} has no cell {unknown[0]}; rows: {', '.join(entry['rows'])}")
    notes = entry.get("notes", {})
    found = []
    for row, column in cells:
        paper, value = None if row in own else published.number(table, row, column), ours.get((row, column))
        reason = (by_row or {}).get(row, otherwise)
        said = published.verdict(value, paper, reason)
        found.append(
            {
                "row": row,
                "column": column,
                "paper": "-" if paper is None else paper.printed,
                "ours": value,
                "difference": None if value is None or paper is None or reason else value - paper.value,
                "95% interval": (intervals or {}).get((row, column), ""),
                **({"sd over seeds": deviations.get((row, column))} if deviations else {}),
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
    return published.NOT_RUN if value is None or pd.isna(value) else f"{value:,.{digits}f}"


def table1_cells(metrics: dict | None) -> dict[tuple[str, str], float]:
    """Return Table 1's cells from the data audit's metrics; none where it has not been run."""
    counts = metrics["scores"]["counts"] if metrics else {}
    return {(split, column): number for split, row in counts.items() for column, number in row.items()}


def bcubed_frame(metrics: dict | None) -> pd.DataFrame:
    """Return BCubed of our clusterer beside the paper's; gold differ, so nothing is compared."""
    ((name, paper),) = published.paper_numbers()["bcubed"]["rows"].items()
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
        return published.NOT_RUN
    return " / ".join(shown(value, digits) for value in values)


if __name__ == "__main__":
    update_readme()
