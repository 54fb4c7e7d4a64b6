"""Procedures drawn as text: the annotation (Fig. 5), kinds of issues (Fig. 2), the method (Fig. 1), its outputs.

Everything is laid out in points on a page of 6.5 inches, as high as the text needs.
"""

from collections.abc import Callable, Mapping, Sequence

from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import FancyBboxPatch, Rectangle
from matplotlib.textpath import text_to_path

from lib.annotation import MARK, Item, Screen

# The picture is laid out in points; 6.5 inches is the text width of a page.
WIDTH, MARGIN, SIZE, LINE = 468, 18, 10, 1.4
INK, QUIET, ACCENT, TINT, WRONG = "#222222", "#555555", "#1f77b4", "#e3eef7", "#c22525"


def screen(item: Item, screen: Screen) -> Figure:
    """Draw what `Annotator` shows, for a report: 6.5 inches wide, as high as the text needs."""
    figure, axis = _page()
    top = _paragraph(axis, screen.instructions, MARGIN, size=0.9 * SIZE, color=QUIET) + SIZE
    axis.plot([MARGIN, WIDTH - MARGIN], [top, top], color="#cccccc", linewidth=0.8)
    top = _item(axis, item, top + SIZE) + SIZE
    top = _paragraph(axis, screen.question, top, weight="bold") + 0.6 * SIZE
    height = _draw_buttons(axis, screen.choices, top) + MARGIN
    axis.add_patch(Rectangle((1, 1), WIDTH - 2, height - 2, fill=False, edgecolor="#999999", linewidth=0.8))
    return _sized(figure, axis, height)


def problems(examples: Sequence[tuple[str, Item, str]]) -> Figure:
    """Draw one example of each kind of issue below each other.

    Parameters
    ----------
    examples : sequence of (title, item, remark)
        The remark says what is wrong with the marked step or the statement.
    """
    figure, axis = _page()
    top = MARGIN
    for title, item, remark in examples:
        top = _paragraph(axis, title, top, size=1.1 * SIZE, weight="bold", color=ACCENT) + 0.4 * SIZE
        top = _item(axis, item, top) + 0.4 * SIZE
        top = _paragraph(axis, remark, top, size=0.9 * SIZE, color=QUIET) + 1.6 * SIZE
    return _sized(figure, axis, top)


def method(
    item: Item,
    slots: Sequence[str],
    first: Sequence[str],
    by_entity: Mapping[str, Sequence[str]],
    names: tuple[str, str] = ("First stage", "Second stage"),
) -> Figure:
    """Draw two-stage decoding with memory on one step, from the input to the joined answers: Figure 1.

    Parameters
    ----------
    item : Item
        Goal, steps so far, and the step that is asked about; no statement.
    slots : sequence of str
        What the memory holds before the step, `attribute of entity`.
    first : sequence of str
        What the first stage says.
    by_entity : mapping
        Entity -> what the second stage says about it.
    names : (str, str)
        Of the two models.
    """
    figure, axis = _page()
    top = _box(axis, "Input", lambda top: _item(axis, item, top), MARGIN)
    held = ", ".join(slots) or "nothing yet"
    top = _box(axis, "Entity memory before this step", lambda top: _paragraph(axis, held, top, color=QUIET), top)
    top = _arrow(axis, top, f"{names[0]}: encoder tokens and memory slots in one attention")
    top = _box(axis, "What changes, and whose", lambda top: _lines(axis, [(s, INK) for s in first], top), top)
    top = _arrow(axis, top, "entities, one by one")
    asked = [(f"Now, what happens to {entity}?", QUIET) for entity in by_entity]
    top = _box(axis, "Questions, each with the same goal and steps", lambda top: _lines(axis, asked, top), top)
    top = _arrow(axis, top, names[1])
    said = [(s, INK) for sentences in by_entity.values() for s in sentences]
    top = _box(axis, "Answers, joined", lambda top: _lines(axis, said, top), top)
    return _sized(figure, axis, top)


def two_stages(item: Item, first: Sequence[str], second: Sequence[str]) -> Figure:
    """Draw both stages' outputs on one step below each other, what only one of them says in colour: Figure 3."""
    figure, axis = _page()
    top = _item(axis, item, MARGIN) + SIZE
    for title, said, other, colour in (
        ("First stage (red: the second does not say it)", first, second, WRONG),
        ("Second stage (blue: the first does not say it)", second, first, ACCENT),
    ):
        top = _paragraph(axis, title, top, weight="bold") + 0.3 * SIZE
        top = _lines(axis, [(s, INK if s in other else colour) for s in said], top) + SIZE
    return _sized(figure, axis, top)


def grounded(item: Item, said: Mapping[str, Sequence[tuple[str, bool]]]) -> Figure:
    """Draw what several models say about one step; what the text does not carry is red: Figure 4.

    Parameters
    ----------
    item : Item
    said : mapping
        Model -> (sentence, whether it was flagged).
    """
    figure, axis = _page()
    top = _item(axis, item, MARGIN) + SIZE
    for name, sentences in said.items():
        flagged = sum(flag for _, flag in sentences)
        title = f"{name}: {len(sentences)} changes, {flagged} flagged"
        top = _paragraph(axis, title, top, weight="bold") + 0.3 * SIZE
        top = _lines(axis, [(sentence, WRONG if flag else INK) for sentence, flag in sentences], top) + SIZE
    return _sized(figure, axis, top)


def _lines(axis, rows: Sequence[tuple[str, str]], top: float) -> float:
    """Draw a list of (text, colour); return where it ends."""
    for text, colour in rows or [("nothing", QUIET)]:
        _paragraph(axis, "·", top, left=MARGIN + 1.2 * SIZE, color=colour, hanging=True)
        top = _paragraph(axis, text, top, left=MARGIN + 1.2 * SIZE, color=colour)
    return top


def _box(axis, title: str, content: Callable[[float], float], top: float) -> float:
    """Draw a titled box around what `content` draws; return where it ends."""
    start = top
    top = _paragraph(axis, title, top + 0.5 * SIZE, left=MARGIN, weight="bold", color=ACCENT)
    top = content(top + 0.3 * SIZE) + 0.6 * SIZE
    height = top - start
    frame = {"fill": False, "edgecolor": "#999999", "linewidth": 0.8}
    axis.add_patch(Rectangle((0.5 * MARGIN, start), WIDTH - MARGIN, height, **frame))
    return top + 0.8 * SIZE


def _arrow(axis, top: float, text: str) -> float:
    """Draw an arrow down with a text beside it; return where it ends."""
    style = {"arrowstyle": "-|>", "color": QUIET, "linewidth": 1.2, "shrinkA": 0, "shrinkB": 0}
    axis.annotate("", (2 * MARGIN, top + 2 * SIZE), (2 * MARGIN, top - 0.4 * SIZE), arrowprops=style)
    _paragraph(axis, text, top, left=3 * MARGIN, size=0.9 * SIZE, color=QUIET)
    return top + 2.4 * SIZE


def _page():
    """Return a figure and an axis that fills it."""
    figure = Figure()
    axis = figure.add_axes((0, 0, 1, 1))
    axis.set_axis_off()
    return figure, axis


def _sized(figure: Figure, axis, height: float) -> Figure:
    """Give the page its height, in points, from the top down."""
    axis.set(xlim=(0, WIDTH), ylim=(height, 0))
    figure.set_size_inches(WIDTH / 72, height / 72)
    return figure


def _item(axis, item: Item, top: float) -> float:
    """Draw goal, steps and statement; return where they end."""
    top = _paragraph(axis, item.goal, top, size=1.2 * SIZE, weight="bold") + 0.5 * SIZE
    for number, step in enumerate(item.steps, start=1):
        marked = number == item.current
        style = {"left": MARGIN + 4 * SIZE, "weight": "bold" if marked else "normal"}
        _paragraph(axis, f"{MARK} {number}." if marked else f"{number}.", top, **style, hanging=True)
        bottom = _paragraph(axis, step, top, **style)
        if marked:
            axis.add_patch(Rectangle((MARGIN, top), WIDTH - 2 * MARGIN, bottom - top, facecolor=TINT, zorder=0))
        top = bottom
    if item.statement:
        start = top + SIZE
        top = _paragraph(axis, item.statement, start, left=MARGIN + SIZE, style="italic")
        axis.add_patch(Rectangle((MARGIN, start), 2.5, top - start, facecolor=ACCENT))
    return top


def _paragraph(axis, text, top, left=MARGIN, size=SIZE, color=INK, hanging=False, **style) -> float:
    """Draw a text in lines that fit, or one line that ends before `left`; return where it ends."""
    font = FontProperties(size=size, **style)
    where, side = (left - 0.6 * SIZE, "right") if hanging else (left, "left")
    for line in _wrap(text, WIDTH - MARGIN - left, font):
        # A capital is 0.73 of the size high: this base line centres it in the line. Data may hold dollar signs.
        axis.text(where, top + 1.06 * size, line, font=font, color=color, ha=side, parse_math=False)
        top += LINE * size
    return top


def _draw_buttons(axis, choices: Sequence[str], top: float) -> float:
    """Draw the choices as a row of buttons, or several rows; return where they end."""
    font, padding = FontProperties(size=SIZE), 0.9 * SIZE
    widest = WIDTH - 2 * MARGIN - 2 * padding
    labels = [_wrap(f"{number}  {choice}", widest, font) for number, choice in enumerate(choices, start=1)]
    height = max(map(len, labels)) * LINE * SIZE + padding
    look = {"boxstyle": "round,pad=0,rounding_size=3", "facecolor": TINT, "edgecolor": ACCENT, "linewidth": 0.8}
    left = MARGIN
    for lines in labels:
        width = max(_width(line, font) for line in lines) + 2 * padding
        if left > MARGIN and left + width > WIDTH - MARGIN:
            left, top = MARGIN, top + height + padding
        axis.add_patch(FancyBboxPatch((left, top), width, height, **look))
        centre = (left + width / 2, top + height / 2)
        axis.text(*centre, "\n".join(lines), font=font, color=INK, ha="center", va="center", parse_math=False)
        left += width + padding
    return top + height


def _wrap(text: str, width: float, font: FontProperties) -> list[str]:
    """Cut a text into lines that fit a width in points, between words where that is possible."""
    lines = []
    for part in text.splitlines():
        lines.append("")
        for word in part.split():
            if lines[-1] and _width(f"{lines[-1]} {word}", font) > width:
                lines.append("")
            lines[-1] = f"{lines[-1]} {word}".strip()
            # An address in a text can be wider than a line.
            while _width(lines[-1], font) > width:
                fitting = next(end for end in range(len(lines[-1]), 0, -1) if _width(lines[-1][:end], font) <= width)
                lines[-1:] = [lines[-1][:fitting], lines[-1][fitting:]]
    return lines


def _width(text: str, font: FontProperties) -> float:
    """Return the width of a text in points."""
    return text_to_path.get_text_width_height_descent(text, font, ismath=False)[0]
