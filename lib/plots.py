"""One function a figure; each returns a Matplotlib Figure and draws nothing by itself."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from matplotlib.ticker import MaxNLocator

# Two data sets, the same two colours in every figure (readable in grey and with colour blindness).
COLOURS = {"OpenPI": "#7f7f7f", "OpenPI-C": "#1f77b4"}


def distributions(histograms: dict[str, dict[str, Sequence[int]]]) -> Figure:
    """Draw the shares of small whole numbers for both data sets, a panel a quantity.

    Parameters
    ----------
    histograms : dict
        Panel title -> data set -> counts of 0, 1, ..., where the last stands for "or more".
    """
    figure = Figure(figsize=(4.5 * len(histograms), 3.2), layout="constrained")
    for axis, (title, by_name) in zip(
        figure.subplots(1, len(histograms), squeeze=False)[0], histograms.items(), strict=True
    ):
        width = 0.8 / len(by_name)
        for index, (name, counts) in enumerate(by_name.items()):
            shares = 100 * np.asarray(counts) / np.sum(counts)
            positions = np.arange(len(shares)) + (index - (len(by_name) - 1) / 2) * width
            label = f"{name} (n = {int(np.sum(counts)):,})"
            axis.bar(positions, shares, width, color=COLOURS[name], label=label)
        last = len(next(iter(by_name.values()))) - 1
        axis.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
        axis.set_xlim(-0.6, last + 0.6)
        axis.set_xlabel(f"{title} (last: {last} or more)")
        axis.set_ylabel("share (%)")
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(frameon=False, fontsize=8)
    return figure


def loss_curve(curve: Sequence[dict], score: str = "original ROUGE-L F1 on dev, greedy (%)") -> Figure:
    """Draw training and validation loss by update, and the validation score where there is one.

    Parameters
    ----------
    curve : sequence of dict
        `update` and one of `train_loss`, `dev_loss`, `dev_score`, see `lib.training.FitReport`.
    score : str
        What the validation score is.
    """
    figure = Figure(figsize=(5.5, 3.4), layout="constrained")
    axis = figure.subplots()
    axis.set_xlabel("update")
    axis.set_ylabel("cross entropy (nats a token)")
    series = {
        key: [(e["update"], e[key]) for e in curve if key in e] for key in ("train_loss", "dev_loss", "dev_score")
    }
    for key, colour, label in (("train_loss", "#7f7f7f", "train"), ("dev_loss", "#1f77b4", "dev")):
        if series[key]:
            axis.plot(*zip(*series[key], strict=True), marker="o", markersize=3, color=colour, label=label)
    axis.set_ylim(bottom=0)
    if series["dev_score"]:
        other = axis.twinx()
        updates, scores = zip(*series["dev_score"], strict=True)
        other.plot(
            updates, [100 * score for score in scores], color="#d62728", linestyle="--", label="dev score (right)"
        )
        other.set_ylabel(score)
        other.set_ylim(bottom=0)
        other.spines[["top"]].set_visible(False)
    axis.spines[["top"]].set_visible(False)
    figure.legend(loc="outside upper center", ncols=3, frameon=False, fontsize=8)
    return figure


def flow_chart(flow: pd.DataFrame, titles: Mapping[str, str]) -> Figure:
    """Draw what is left after each stage of cleaning down the middle, and what was dropped at each to the right.

    Parameters
    ----------
    flow : DataFrame
        Rows `raw`, then a stage a row, then `rules`; columns procedures, steps, state changes. See
        `lib.cleaning.flow`.
    titles : mapping
        Row -> what was dropped there.
    """
    figure = Figure(figsize=(8.2, 1.25 * len(flow)), layout="constrained")
    axis = figure.subplots()
    axis.set(xlim=(0, 10), ylim=(-len(flow) + 0.45, 0.55))
    axis.axis("off")
    arrow = {"arrowstyle": "-|>", "color": "#555555", "linewidth": 1.2, "shrinkA": 0, "shrinkB": 0}
    for place, (name, left) in enumerate(flow.iterrows()):
        title = {0: "Raw data", len(flow) - 1: "Cleaned data"}.get(place, "What is left")
        _box(axis, 0.2, -place, 4.6, title, left, "#1f77b4")
        if place:
            gone = flow.iloc[place - 1] - left
            axis.annotate("", (2.5, -place + 0.33), (2.5, -place + 0.67), arrowprops=arrow)
            axis.annotate("", (5.2, -place + 0.5), (2.5, -place + 0.5), arrowprops=arrow)
            _box(axis, 5.2, -place + 0.5, 4.6, titles[name], gone, "#d62728")
    return figure


def _box(axis, x: float, y: float, width: float, title: str, numbers: pd.Series, colour: str) -> None:
    """Draw one box of a flow chart with a title and three counts."""
    height = 0.66 if colour == "#1f77b4" else 0.56
    axis.add_patch(
        FancyBboxPatch(
            (x, y - height / 2), width, height, boxstyle="round,pad=0,rounding_size=0.08", linewidth=1.2,
            edgecolor=colour, facecolor=f"{colour}14", mutation_aspect=1,
        )
    )  # fmt: skip
    counts = "   ".join(f"{value:,} {kind}" for kind, value in numbers.items())
    axis.text(x + width / 2, y + 0.12, title, ha="center", va="center", fontsize=9, weight="bold")
    axis.text(x + width / 2, y - 0.13, counts, ha="center", va="center", fontsize=8)


def outputs_and_scores(compared: pd.DataFrame) -> Figure:
    """Draw precision and recall against outputs per step, a panel a metric: the paper's Figure 6.

    Parameters
    ----------
    compared : DataFrame
        From `lib.strategies.compare`, a row a length penalty (`way`).
    """
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    ordered = compared.sort_values("outputs_per_step")
    for axis, (metric, title) in zip(
        figure.subplots(1, 2, sharey=True), (("original", "original"), ("cluster", "cluster-based")), strict=True
    ):
        for part, colour in (("precision", "#1f77b4"), ("recall", "#d62728")):
            values = 100 * ordered[f"{metric}_rouge_l_{part}"]
            axis.plot(ordered["outputs_per_step"], values, marker="o", markersize=4, color=colour, label=part)
            for x, y, way in zip(ordered["outputs_per_step"], values, ordered["way"], strict=True):
                axis.annotate(way, (x, y), xytext=(0, 5), textcoords="offset points", fontsize=7, ha="center")
        axis.set_xlabel("outputs per step (labels: length penalty)")
        axis.set_title(f"{title} metric", fontsize=10)
        axis.spines[["top", "right"]].set_visible(False)
        axis.margins(x=0.1, y=0.15)
    figure.axes[0].set_ylabel("ROUGE-L (%)")
    figure.axes[0].legend(frameon=False, fontsize=8)
    return figure


def repetition(curve: pd.DataFrame) -> Figure:
    """Draw both F1s against how often predictions are repeated in other words, a panel a choice of predictions.

    Parameters
    ----------
    curve : DataFrame
        From `lib.strategies.repetition_curve`.
    """
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    groups = list(curve.groupby("repeated", sort=False))
    for axis, (label, rows) in zip(figure.subplots(1, len(groups), sharey=True), groups, strict=True):
        for metric, name, colour in (("original", "original", "#d62728"), ("cluster", "cluster-based", "#1f77b4")):
            axis.plot(rows["times"], 100 * rows[metric], marker="o", markersize=4, color=colour, label=name)
        axis.set_xlabel(f"times that {label} is said")
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        axis.spines[["top", "right"]].set_visible(False)
    # The panels share their axis: a limit set before the last one is drawn would cut what comes later.
    figure.axes[0].set_ylim(bottom=0)
    figure.axes[0].set_ylabel("ROUGE-L F1 (%)")
    figure.axes[0].legend(frameon=False, fontsize=8)
    return figure


def slots_over_steps(counts: Mapping[str, Sequence[Sequence[int]]]) -> Figure:
    """Draw the mean number of memory slots before each step, with the range over procedures.

    Parameters
    ----------
    counts : mapping
        Name -> for each procedure, the number of slots before each of its steps (`lib.memory.slot_counts`).
    """
    figure = Figure(figsize=(5.5, 3.4), layout="constrained")
    axis = figure.subplots()
    for (name, by_procedure), colour in zip(counts.items(), ("#7f7f7f", "#1f77b4"), strict=False):
        longest = max(map(len, by_procedure))
        columns = [[own[step] for own in by_procedure if step < len(own)] for step in range(longest)]
        steps = np.arange(1, longest + 1)
        axis.plot(steps, [np.mean(column) for column in columns], marker="o", markersize=4, color=colour, label=name)
        low, high = ([np.quantile(column, q) for column in columns] for q in (0.1, 0.9))
        axis.fill_between(steps, low, high, color=colour, alpha=0.15, linewidth=0)
    axis.set_xlabel("step")
    axis.set_ylabel("slots before it (band: 10% to 90%)")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.set_ylim(bottom=0)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, fontsize=8)
    return figure


def memory_attention(steps: Sequence[Mapping], title: str = "") -> Figure:
    """Draw which slot each change looks at, all steps of a procedure in one picture.

    Parameters
    ----------
    steps : sequence of mappings
        `lib.attention.as_record` of each step: `step`, `changes`, `slots`, `weights` (changes, slots).
    """
    slots = max((step["slots"] for step in steps), key=len, default=[])
    shown = [step for step in steps if step["slots"] and step["changes"]]
    rows = [
        (step["step"], change, weights)
        for step in shown
        for change, weights in zip(step["changes"], step["weights"], strict=True)
    ]
    figure = Figure(figsize=(3.2 + 0.32 * max(len(slots), 4), 1.8 + 0.26 * max(len(rows), 2)), layout="constrained")
    axis = figure.subplots()
    if not rows:
        axis.axis("off")
        axis.text(0.5, 0.5, "no change is said once a slot exists", ha="center", va="center", fontsize=9)
        return figure
    matrix = np.full((len(rows), len(slots)), np.nan)
    for at, (_, _, weights) in enumerate(rows):
        matrix[at, : len(weights)] = 100 * np.asarray(weights)
    axis.set_facecolor("#eeeeee")
    image = axis.imshow(matrix, cmap="Blues", aspect="auto", vmin=0)
    axis.set_xticks(range(len(slots)), slots, rotation=60, ha="right", fontsize=7)
    axis.set_yticks(range(len(rows)), [f"{step}: {change}" for step, change, _ in rows], fontsize=7)
    for at in range(1, len(rows)):
        if rows[at][0] != rows[at - 1][0]:
            axis.axhline(at - 0.5, color="#555555", linewidth=0.8)
    axis.set_xlabel("memory slot, in order of creation (grey: not there yet)")
    axis.set_ylabel("step: change that is said")
    axis.set_title(title, fontsize=9)
    figure.colorbar(image, ax=axis, label="share of attention (%)", shrink=0.8)
    return figure


def log_odds(panels: Mapping[str, tuple[Sequence[float], Sequence[bool], float]]) -> Figure:
    """Draw how the log-odds of Yes lie for both classes, a panel a setting, with both thresholds.

    Parameters
    ----------
    panels : mapping
        Title -> (log-odds, labels, log-odds of the question without content).
    """
    figure = Figure(figsize=(3.6 * len(panels), 3.2), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axis, (title, (odds, labels, free)) in zip(axes, panels.items(), strict=True):
        odds, labels = np.asarray(odds), np.asarray(labels, dtype=bool)
        bins = np.linspace(min(odds.min(), free, 0) - 0.1, max(odds.max(), free, 0) + 0.1, 40)
        for said, colour in ((True, "#1f77b4"), (False, "#d62728")):
            name = f"gold {'Yes' if said else 'No'} ({(labels == said).sum()})"
            axis.hist(odds[labels == said], bins, color=colour, alpha=0.55, label=name)
        axis.axvline(0, color="black", linewidth=1.2, label="P(Yes) = P(No)")
        axis.axvline(free, color="black", linewidth=1.2, linestyle="--", label="question without content")
        axis.set_title(title, fontsize=9)
        axis.set_xlabel("log P(Yes) - log P(No)")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("rows")
    handles, names = axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=4, frameon=False, fontsize=8)
    return figure


def scaling(published: pd.DataFrame, ours: pd.DataFrame) -> Figure:
    """Draw multi-choice accuracy against model size: published numbers as open markers, ours as filled ones.

    Parameters
    ----------
    published, ours : DataFrame
        Columns family, model, millions (of parameters) and accuracy (in percent); may be empty.
    """
    figure = Figure(figsize=(6, 3.8), layout="constrained")
    axis = figure.subplots()
    families = list(dict.fromkeys([*published["family"], *ours["family"]]))
    shapes, colours = "osD^v", ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#7f7f7f")
    for frame, filled, label in ((published, False, "published"), (ours, True, "ours")):
        for family, rows in frame.sort_values("millions").groupby("family", sort=False):
            place = families.index(family) % len(shapes)
            axis.plot(
                rows["millions"], rows["accuracy"], marker=shapes[place], color=colours[place],
                markerfacecolor=colours[place] if filled else "white", linewidth=1.2,
                linestyle="-" if filled else ":", label=f"{family}, {label}",
            )  # fmt: skip
    axis.axhline(50, color="#bbbbbb", linewidth=1)
    axis.annotate("chance", (1, 50), xycoords=("axes fraction", "data"), fontsize=8, va="bottom", ha="right")
    axis.set_xscale("log")
    axis.set_xlabel("parameters (millions)")
    axis.set_ylabel("multi-choice accuracy (%)")
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, fontsize=8)
    return figure
