"""Each trained row beside the row that it adds something to, on the same steps: a paired bootstrap over procedures."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from lib.metrics.report import aligned, difference

# A difference of 2.8 standard errors is found (at 5%, two-sided) in 80% of test sets like this one: 1.96 + 0.84.
DETECTABLE = 2.8
HALF_WIDTHS = 1.96


def frame(rows: Mapping[str, dict], seed: int = 0) -> pd.DataFrame:
    """Return differences in F1, in points, of every row from its baselines, where both have been run.

    Parameters
    ----------
    rows : mapping
        Row -> metrics, see `lib.rows.trained_rows`.
    seed : int
        Of resampling.

    Returns
    -------
    DataFrame
        Columns row, against, metric, steps, difference, low, high (95%), smallest difference that a test set like this
        one would show in four of five cases, and whether this one shows a difference.

    Raises
    ------
    ValueError
        If two rows were scored on other steps.
    """
    made = []
    for row in rows:
        for other in baselines(row):
            if other in rows:
                made += _pair(row, rows[row], other, rows[other], seed)
    columns = ["row", "against", "metric", "steps", "difference", "low", "high", "detectable", "verdict"]
    return pd.DataFrame(made, columns=columns)


def baselines(row: str) -> list[str]:
    """Return the rows that a row adds something to, by its name; a remark in brackets is something, too.

    Examples
    --------
    >>> baselines("BART + EMem + ECond"), baselines("BART + ECond (released settings)")
    (['BART', 'BART + EMem'], ['BART', 'BART + ECond'])
    """
    plain = row.partition(" (")[0]
    parts = plain.split(" + ")
    names = [" + ".join(parts[:number]) for number in range(1, len(parts))]
    return names if plain == row else [*names, plain]


def _pair(row: str, ours: dict, other: str, theirs: dict, seed: int) -> list[tuple]:
    """Return one line a metric."""
    mine, base = by_step(row, ours), by_step(other, theirs)
    made = []
    for metric in (name for name in mine if name != "ids" and name in base):
        against = aligned(mine["ids"], base["ids"], [values[2] for values in base[metric]])
        f1 = [values[2] for values in mine[metric]]
        mean, low, high, verdict = difference(mine["ids"], f1, against, seed)
        detectable = DETECTABLE * (high - low) / (2 * HALF_WIDTHS)
        made.append((row, other, metric, len(against), mean, low, high, detectable, verdict))
    return made


def by_step(row: str, metrics: dict) -> dict[str, list]:
    """Return a row's ids and scores by step, (P, R, F1) each; means over seeds where several runs fill it.

    A run that fills several rows has them by row.
    """
    several = [run["per_step"].get(row) or run["per_step"]["model"] for run in [metrics, *metrics.get("repeats", ())]]
    ids = several[0]["ids"]
    if len(several) == 1:
        return several[0]
    names = [name for name in several[0] if name != "ids"]
    return {"ids": ids} | {
        name: np.mean([aligned(ids, run["ids"], run[name]) for run in several], axis=0).tolist() for name in names
    }
