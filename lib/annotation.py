"""Annotation in a notebook: `Annotator` asks about items one by one and saves every vote at once.

The three stages of OpenPI-C's cleaning (appendix B and Fig. 5) are three `Screen`s; any other question with a few
answers is one more.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from html import escape
from pathlib import Path

import ipywidgets as widgets

from lib.data.lines import read_jsonl
from lib.paths import shown
from lib.votes import WITHDRAWN, Vote, append_vote, read_votes

UNDO_KEYS = ("0", "u")
MARK = "►"
MARKED = "font-weight:bold;background:var(--jp-layout-color2,#eeeeee)"
QUOTED = "border-left:3px solid;padding-left:0.6em;font-style:italic;margin:0.4em 0"


@dataclass(frozen=True)
class Item:
    """One thing to vote on.

    Attributes
    ----------
    id : str
        What the votes file calls it.
    goal : str
        Title of the procedure.
    steps : tuple of str
    current : int
        Number, from 1, of the step that is asked about; 0 for the whole text.
    statement : str
        What is asked about, for example the sentence of a state change; "" for none.
    """

    id: str
    goal: str
    steps: tuple[str, ...]
    current: int
    statement: str

    def __post_init__(self):
        if not self.id or self.id != self.id.strip():
            raise ValueError(f"item id {self.id!r}: expected a text without spaces around it, as in the votes file")
        if not 0 <= self.current <= len(self.steps):
            raise ValueError(
                f"item {self.id!r}: current is {self.current}, expected the number of one of its {len(self.steps)} "
                "steps, or 0 for the whole text"
            )


@dataclass(frozen=True)
class Screen:
    """One question: `stage` is its name in the votes file, `choices` are the two to nine votes it knows."""

    stage: str
    instructions: str
    question: str
    choices: tuple[str, ...]

    def __post_init__(self):
        if not 2 <= len(set(self.choices)) == len(self.choices) <= 9:
            raise ValueError(f"screen {self.stage!r}: choices are {self.choices}, expected two to nine different ones")
        for name in (self.stage, *self.choices):
            if not name or name != name.strip() or name == WITHDRAWN:
                raise ValueError(
                    f"screen {self.stage!r}: {name!r} as stage or choice; expected a text without spaces around it "
                    f"that is not {WITHDRAWN!r}, which takes votes back"
                )


class Annotator:
    """Ask one annotator about items and save every vote at once; as a cell's last expression it shows itself.

    The votes file is what counts: it is read again before every vote, and work goes on where it ends. It may hold
    other stages and other annotators too.

    Parameters
    ----------
    items : sequence of Item
        In the order of asking.
    screen : Screen
    votes_path : Path
        JSON lines, see `lib.votes`; made with the first vote.
    annotator : str
        Id of the person who votes.

    Attributes
    ----------
    widget : ipywidgets.VBox
        The interface.
    item : Item or None
        What is on screen; None when everything is done.

    Raises
    ------
    ValueError
        If there are no items or two with one id, if the annotator has no name, or if the votes file has a fault.
    """

    def __init__(self, items: Sequence[Item], screen: Screen, votes_path: Path, annotator: str):
        items = list(items)
        if not items:
            raise ValueError("items: there is none to vote on; check the data and the filter that chose them")
        twice = [name for name, count in Counter(item.id for item in items).items() if count > 1]
        if twice:
            raise ValueError(f"items: {twice[0]!r} is the id of more than one, so a vote would count for each")
        if not annotator.strip():
            raise ValueError(f"annotator={annotator!r}: give everyone who votes a short id, for example 'a1'")
        self._items = {item.id: item for item in items}
        self.screen, self.votes_path, self.annotator = screen, Path(votes_path).absolute(), annotator.strip()
        self._build()
        self._show(self._votes())

    def vote(self, choice: str) -> None:
        """Save a choice for the item on screen and show the next; where that fails, say so on screen and stay."""
        if choice not in self.screen.choices:
            raise ValueError(f"vote {choice!r}: stage {self.screen.stage} knows {', '.join(self.screen.choices)}")
        if self.item is None:
            self._say("There is nothing left to vote on.")
            return
        with self._failures_on_screen("Not saved, vote again once this is repaired"):
            votes = self._votes()
            if any(vote.item == self.item.id for vote in votes):
                self._show(votes)
                self._say("That item had a vote already, perhaps from another window. It stands.")
            else:
                vote = Vote(self.screen.stage, self.item.id, self.annotator, choice)
                append_vote(self.votes_path, vote)
                self._show([*votes, vote])

    def undo(self) -> None:
        """Withdraw this annotator's last vote, be it of an earlier session, and show its item again."""
        with self._failures_on_screen("Not taken back"):
            votes = self._votes()
            if not votes:
                self._say("There is no vote to take back.")
                return
            last = votes.pop()
            append_vote(self.votes_path, Vote(last.stage, last.item, last.annotator, WITHDRAWN))
            self._show(votes, self._items[last.item])
            self._say(f"Taken back: {last.vote}")

    def __repr__(self) -> str:
        return f"Annotator of stage {self.screen.stage!r} for {self.annotator!r}: {self._count.value}"

    def _repr_mimebundle_(self, **options):
        """Show the widget, and a line of text where widgets are not shown."""
        return {**self.widget._repr_mimebundle_(**options), "text/plain": repr(self)}

    def _votes(self) -> list[Vote]:
        """Return this annotator's standing votes on these items, oldest first; other stages are taken as they are."""
        if not self.votes_path.exists() or self.votes_path.stat().st_size == 0:
            return []
        choices: dict[str, set[str]] = {}
        for _, row in read_jsonl(self.votes_path):
            choices.setdefault(str(row.get("stage")).strip(), set()).add(str(row.get("vote")).strip())
        votes = read_votes(self.votes_path, {**choices, self.screen.stage: self.screen.choices})
        mine = (self.screen.stage, self.annotator)
        return [vote for vote in votes if (vote.stage, vote.annotator) == mine and vote.item in self._items]

    def _build(self) -> None:
        """Make the widgets; their order is also that of the tab key."""
        self._keys = {str(number): choice for number, choice in enumerate(self.screen.choices, start=1)}
        self._bar, self._count = widgets.IntProgress(max=len(self._items)), widgets.Label()
        self._text, self._message = widgets.HTML(), widgets.HTML()
        self._field = widgets.Text(description="Key:", placeholder=f"1 to {len(self._keys)}")
        self._field.style.description_width, self._field.layout.width = "initial", "9em"
        self._field.observe(self._typed, names="value")
        self._buttons = [self._button(f"{key}  {choice}", partial(self.vote, choice))
                         for key, choice in self._keys.items()]  # fmt: skip
        self._undo_button = self._button(f"{UNDO_KEYS[0]}  undo", self.undo)
        usage = (
            f"Click into the field Key, then type 1 to {len(self._keys)} to vote, or {' or '.join(UNDO_KEYS)} to take "
            "the last vote back. The tab key leads from the field to the buttons, which space or enter presses. "
            "The next item appears once the vote is saved."
        )
        row = widgets.Layout(flex_flow="row wrap")
        self.widget = widgets.VBox(
            [
                widgets.HTML(_html(self.screen.instructions)),
                widgets.HBox([self._bar, self._count]),
                self._text,
                widgets.HBox([self._field, *self._buttons, self._undo_button], layout=row),
                self._message,
                widgets.HTML(_html(usage, "font-size:90%;opacity:0.8")),
            ]
        )

    def _button(self, label: str, act: Callable[[], None]) -> widgets.Button:
        """Return a button that acts, then gives the focus to the field: a digit typed on a button does not arrive."""
        button = widgets.Button(description=label, layout=widgets.Layout(width="auto"))
        button.on_click(lambda _: (act(), self._field.focus()))
        return button

    def _typed(self, change) -> None:
        """Empty the field for the next key and do what this one says; two at once may mean an item not yet seen."""
        key = change["new"].strip().lower()
        if change["new"]:
            self._field.value = ""
        if key in UNDO_KEYS:
            self.undo()
        elif key in self._keys:
            self.vote(self._keys[key])
        elif key:
            self._say(f"{key!r} is none of the keys: type one of {', '.join([*self._keys, *UNDO_KEYS])}.")

    def _show(self, votes: Sequence[Vote], item: Item | None = None) -> None:
        """Show an item, by default the first without a vote, or that everything is done."""
        done = {vote.item for vote in votes}
        self.item = item or next((item for item in self._items.values() if item.id not in done), None)
        self._bar.value, self._count.value = len(done), f"{len(done)} of {len(self._items)}"
        self._undo_button.disabled = not done
        for button in self._buttons:
            button.disabled = self.item is None
        if self.item is None:
            thanks = f"All {len(self._items)} items are done, thank you. The votes are in {shown(self.votes_path)}."
            self._text.value = _html(thanks, "font-weight:bold")
        else:
            self._text.value = _item_html(self.item) + _html(self.screen.question, "font-weight:bold")

    def _say(self, text: str, style: str = "") -> None:
        """Show a message under the buttons."""
        self._message.value = _html(text, style)

    @contextmanager
    def _failures_on_screen(self, what: str) -> Iterator[None]:
        """Take the last message away, and say what goes wrong with the votes file."""
        self._say("")
        try:
            yield
        except (OSError, ValueError) as error:
            self._say(f"{what}: {error}", "color:var(--jp-error-color1,#b00020)")


def _html(text: str, style: str = "") -> str:
    """Return a text as HTML that shows it as it is."""
    return f'<div style="white-space:pre-line;line-height:1.5;{style}">{escape(text)}</div>' if text else ""


def _item_html(item: Item) -> str:
    """Return goal, steps and statement as HTML."""
    steps = "".join(
        f'<li aria-current="step" style="{MARKED}">{MARK} {escape(step)}</li>'
        if number == item.current
        else f"<li>{escape(step)}</li>"
        for number, step in enumerate(item.steps, start=1)
    )
    steps = f'<ol style="margin:0.3em 0;padding-left:2.2em;line-height:1.5">{steps}</ol>'
    return _html(item.goal, "font-weight:bold") + steps + _html(item.statement, QUOTED)
