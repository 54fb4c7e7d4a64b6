"""Figures of the metric: two texts coloured token by token, and the metric against people's judgements."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch


def token_heat(positions: pd.DataFrame, score: str = "f1", width: float = 9.0) -> Figure:
    """Draw two texts token by token: the colour is how well the token was filled, below it stands what was filled.

    Parameters
    ----------
    positions : DataFrame
        One pair of `lib.token_questeval.TokenQuestEval.positions`.
    score : str
        The column that gives the colour, in [0, 1].
    width : float
        Inches.
    """
    titles = {"mask_hyp": "hypothesis, filled from the source", "mask_src": "source, filled from the hypothesis"}
    groups = [(titles[name], rows) for name in titles if len(rows := positions[positions.direction == name])]
    lines = [_wrapped(rows, 14 * width) for _, rows in groups]
    figure = Figure(figsize=(width, 0.3 + 0.58 * sum(map(len, lines)) + 0.4 * len(lines)), layout="constrained")
    axis = figure.subplots()
    colours, top = colormaps["RdYlGn"], 0.0
    for (title, _), of_text in zip(groups, lines, strict=True):
        axis.text(0, top, title, fontsize=9, weight="bold", va="top")
        top -= 0.35
        for line in of_text:
            for left, cell, row in line:
                colour = colours(float(row[score]))
                box = FancyBboxPatch(
                    (left, top - 0.62), cell - 0.8, 0.62, boxstyle="round,pad=0,rounding_size=0.1",
                    mutation_aspect=0.05, facecolor=colour, edgecolor="none", alpha=0.55,
                )  # fmt: skip
                axis.add_patch(box)
                centre = left + (cell - 0.8) / 2
                axis.text(centre, top - 0.2, row["token"], fontsize=9, ha="center", va="center")
                axis.text(centre, top - 0.47, row["answer"], fontsize=7, ha="center", va="center", color="#444444")
            top -= 0.78
        top -= 0.2
    axis.set(xlim=(0, 14 * width), ylim=(top, 0.1))
    axis.axis("off")
    figure.colorbar(ScalarMappable(cmap=colours), ax=axis, label=score, shrink=0.8)
    return figure


def _wrapped(rows: pd.DataFrame, width: float) -> list[list[tuple[float, float, pd.Series]]]:
    """Return lines of (left edge, width, row); a cell is as wide as the longer of token and answer."""
    lines, left = [[]], 0.0
    for _, row in rows.iterrows():
        cell = 2.2 + max(1.35 * len(row["token"]), 1.05 * len(row["answer"]))
        if left + cell > width and lines[-1]:
            lines.append([])
            left = 0.0
        lines[-1].append((left, cell, row))
        left += cell
    return lines


def agreement(panels: Mapping[str, tuple[Sequence[float], Sequence[float]]], metric: str) -> Figure:
    """Draw a metric against people's judgements, a panel a dimension, with a least-squares line.

    Parameters
    ----------
    panels : mapping
        Dimension -> (metric, judgement) of the same texts.
    metric : str
        Its name.
    """
    figure = Figure(figsize=(2.9 * len(panels), 3.1), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False, sharex=True)[0]
    for axis, (title, (scores, human)) in zip(axes, panels.items(), strict=True):
        scores, human = np.asarray(scores, dtype=float), np.asarray(human, dtype=float)
        axis.scatter(scores, human, s=8, alpha=0.4, color="#1f77b4", linewidths=0)
        if len(np.unique(scores)) > 1:
            slope, offset = np.polyfit(scores, human, 1)
            ends = np.array([scores.min(), scores.max()])
            axis.plot(ends, offset + slope * ends, color="#d62728", linewidth=1.5)
        axis.set_title(f"{title} (n = {len(scores)})", fontsize=9)
        axis.set_xlabel(metric)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("people's judgement (1 to 5)")
    return figure
