"""The three screens of the annotation (OpenPI-C paper, Figure 5), in our own words, and what they show."""

from collections.abc import Sequence

from IPython.display import Markdown

from lib.annotation import Annotator, Item, Screen
from lib.cleaning.items import CHOICES, change_id, item_ids
from lib.cleaning.stages import to_judge
from lib.data import Procedure, load, step_id
from lib.data.lines import read_jsonl
from lib.data.procedures import SPLITS
from lib.paths import ROOT, SAMPLE
from lib.votes import read_votes

SCREENS = {
    "procedure": Screen(
        stage="procedure",
        instructions=(
            "Read the whole text. A procedure reaches one goal by steps that follow each other in time. A list of "
            "tips, alternatives or facts is not one, however useful it is."
        ),
        question="Is this text a procedure?",
        choices=CHOICES["procedure"],
    ),
    "step": Screen(
        stage="step",
        instructions=(
            "Look at the marked step. A valid step is something that a person can carry out where it stands. A step "
            "that only gives advice, or comes too early or too late among the others, is invalid."
        ),
        question="Is the marked step valid?",
        choices=CHOICES["step"],
    ),
    "change": Screen(
        stage="change",
        instructions=(
            "Somebody wrote what the marked step changes. Judge from the text up to this step alone: certain if it "
            "must be so, uncertain if it may or may not be, impossible if it cannot be."
        ),
        question="Does the marked step cause this change?",
        choices=CHOICES["change"],
    ),
}


def screen_items(procedures: Sequence[Procedure], stage: str) -> list[Item]:
    """Return what a stage's screen asks about, in order.

    Parameters
    ----------
    procedures : sequence of Procedure
        What the earlier stages left, in the raw numbering.
    stage : {"procedure", "step", "change"}
    """
    if stage not in SCREENS:
        raise ValueError(f"stage={stage!r}: expected one of {', '.join(SCREENS)}")
    items = []
    for procedure in procedures:
        texts = tuple(step.text for step in procedure.steps)
        if stage == "procedure":
            items.append(Item(procedure.id, procedure.goal, texts, 0, ""))
            continue
        for current, step in enumerate(procedure.steps, start=1):
            if stage == "step":
                items.append(Item(step_id(procedure.id, step.number), procedure.goal, texts, current, ""))
            else:
                items += [
                    Item(change_id(procedure.id, step.number, k), procedure.goal, texts[:current], current, sentence)
                    for k, sentence in enumerate(step.sentences, start=1)
                ]
    return items


def problem_examples() -> list[tuple[str, Item, str]]:
    """Return title, item and remark of one example of each kind of issue, from our own sample: Figure 2."""
    planted = [row for _, row in read_jsonl(SAMPLE / "problems.jsonl")]
    raw = [procedure for split in SPLITS for procedure in load("openpi", split, "sample")]
    shown = {stage: {item.id: item for item in screen_items(raw, stage)} for stage in SCREENS}
    text = next(row["procedure"] for row in planted if row["kind"] == "not_procedure")
    step = next(row["step"] for row in planted if row["kind"] == "out_of_order")
    change = next(row for row in planted if row["kind"] == "impossible")
    sentence = next(
        item
        for item in shown["change"].values()
        if item.id.startswith(f"{change['step']}||") and item.statement == change["answer"]
    )
    return [
        ("(a) No procedure", shown["procedure"][text], "Four remarks: none leads to the next, and any order would do."),
        ("(b) A step out of order", shown["step"][step], "It says what should have been done before the first step."),
        ("(c) An impossible state change", sentence, "Nothing in the text makes a plant grow within a step."),
    ]


def first_items() -> dict[str, Item]:
    """Return an item of each screen from our own sample, the examples of the three kinds of issues."""
    return dict(zip(SCREENS, (item for _, item, _ in problem_examples()), strict=True))


def ask(items: Sequence[Item], stage: str, votes: str, annotator: str):
    """Return one screen on given items, or a note on how to get it; see `interface`."""
    if not annotator.strip():
        return Markdown("*Set `annotator` (your id) and `votes` (a file) in the first cell to vote here.*")
    if not votes:
        raise ValueError("votes is empty: name the file to collect into, for example votes='my_votes.jsonl'")
    if not items:
        return Markdown("*There is nothing to judge.*")
    return Annotator(items, SCREENS[stage], ROOT / votes, annotator).widget


def given_votes(items: Sequence[Item], stage: str, votes: str) -> dict[str, str]:
    """Return what annotators said of items so far, the first vote on each; nothing without a file."""
    path = ROOT / votes
    if not votes or not path.exists():
        return {}
    found: dict[str, str] = {}
    for vote in read_votes(path, CHOICES, {stage: [item.id for item in items]}):
        found.setdefault(vote.item, vote.vote)
    return found


def interface(procedures: Sequence[Procedure], votes: str, annotator: str):
    """Return the live interface, a tab a stage, or a note on how to get it.

    Parameters
    ----------
    procedures : sequence of Procedure
        The raw data.
    votes : str
        The votes file to collect into, relative to the project.
    annotator : str
        Who votes; empty for the note.

    Raises
    ------
    ValueError
        If there is an annotator but no file.
    """
    if not annotator.strip():
        return Markdown("*Set `annotator` (your id) and `votes` (a file) in the first cell to vote here.*")
    if not votes:
        raise ValueError("votes is empty: name the file to collect into, for example votes='my_votes.jsonl'")
    import ipywidgets

    path = ROOT / votes
    known = item_ids(procedures)
    given = read_votes(path, CHOICES, known) if path.exists() and path.stat().st_size else []
    pages = []
    for stage, screen in SCREENS.items():
        asked = set(to_judge(procedures, given, stage))
        items = [item for item in screen_items(procedures, stage) if item.id in asked]
        note = ipywidgets.HTML("Earlier stages have left nothing to judge here.")
        pages.append(Annotator(items, screen, path, annotator).widget if items else note)
    return ipywidgets.Tab(pages, titles=[f"{n}. {stage}" for n, stage in enumerate(SCREENS, start=1)])
