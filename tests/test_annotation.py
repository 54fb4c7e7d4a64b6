import json

import pytest

from lib import pictures
from lib.annotation import Annotator, Item, Screen

STEPS = ("Spread a newspaper.", "Tip the fern out of its pot.", "Set it into fresh soil.")
SCREEN = Screen(
    "change", "Judge from the text alone.", "How sure is this change?", ("certain", "uncertain", "impossible")
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "votes" / "fern.jsonl"


def item(number: int, **changes) -> Item:
    """Return one of the fern's items."""
    fields = {"goal": "Repot a Fern", "steps": STEPS, "statement": f"place of fern was in pot {number} before"}
    return Item(**{"id": f"fern||{number}", "current": number, **fields, **changes})


def start(path, annotator="a1", screen=SCREEN, numbers=(1, 2, 3)) -> Annotator:
    """Return an interface for the fern's three items."""
    return Annotator([item(number) for number in numbers], screen, path, annotator)


def lines(path) -> list[tuple[str, ...]]:
    """Return (item, annotator, vote) of each line of a votes file."""
    rows = map(json.loads, path.read_text().splitlines())
    return [(row["item"], row["annotator"], row["vote"]) for row in rows]


def widgets_in(widget) -> list:
    """Return a widget and all inside it."""
    return [widget, *(found for child in getattr(widget, "children", ()) for found in widgets_in(child))]


def button(interface, label):
    """Return the button with a label."""
    return next(w for w in widgets_in(interface.widget) if getattr(w, "description", "") == label)


def press(interface, key):
    """Type a key into the field."""
    field = button(interface, "Key:")
    field.value = key
    assert field.value == "", "the field must be empty for the next key"


def on_screen(interface) -> str:
    """Return all text that is shown."""
    return "\n".join(str(w.value) for w in widgets_in(interface.widget) if hasattr(w, "value"))


def test_a_click_saves_the_vote_and_shows_the_next_item(path):
    interface = start(path)
    assert "0 of 3" in on_screen(interface)
    assert "in pot 1 before" in on_screen(interface)
    button(interface, "2  uncertain").click()
    assert json.loads(path.read_text()) == {
        "stage": "change", "item": "fern||1", "annotator": "a1", "vote": "uncertain"
    }  # fmt: skip
    assert "1 of 3" in on_screen(interface)
    assert "in pot 2 before" in on_screen(interface)
    assert "in pot 1 before" not in on_screen(interface)


def test_a_typed_number_votes_and_the_same_number_votes_again(path):
    interface = start(path)
    press(interface, "3")
    press(interface, "3")
    assert lines(path) == [("fern||1", "a1", "impossible"), ("fern||2", "a1", "impossible")]


@pytest.mark.parametrize("key", ["4", "12", "certain", "²"])
def test_any_other_key_votes_on_nothing_and_says_which_keys_there_are(path, key):
    interface = start(path)
    press(interface, key)
    assert not path.exists()
    assert "type one of 1, 2, 3, 0, u" in on_screen(interface)
    press(interface, " ")
    assert not path.exists()


def test_the_instructions_say_which_keys_do_what(path):
    shown = on_screen(start(path))
    assert "Judge from the text alone." in shown
    assert "type 1 to 3 to vote, or 0 or u to take the last vote back" in shown


def test_a_new_interface_goes_on_where_the_file_ends(path):
    start(path).vote("certain")
    again = start(path)
    assert again.item == item(2)
    assert "1 of 3" in on_screen(again)
    again.vote("certain")
    assert start(path).item == item(3)


def test_an_empty_votes_file_is_a_file_without_votes(path):
    path.parent.mkdir()
    path.touch()
    assert start(path).item == item(1)


def test_annotators_and_stages_in_one_file_do_not_disturb_one_another(path):
    first, second = start(path), start(path, "a2")
    other = start(path, "a1", Screen("step", "", "Is the step valid?", ("valid", "invalid")))
    first.vote("certain")
    second.vote("impossible")
    other.vote("invalid")
    first.vote("uncertain")
    second.undo()
    assert (start(path).item, start(path, "a2").item) == (item(3), item(1))
    assert start(path, "a1", other.screen).item == item(2)
    assert lines(path)[-1] == ("fern||1", "a2", "withdrawn")


def test_votes_on_other_items_are_left_alone(path):
    start(path, numbers=(1, 2)).vote("certain")
    rest = start(path, numbers=(2, 3))
    assert "0 of 2" in on_screen(rest)
    rest.undo()
    assert lines(path) == [("fern||1", "a1", "certain")]


@pytest.mark.parametrize("undo", [lambda i: button(i, "0  undo").click(), lambda i: press(i, "0"),
                                  lambda i: press(i, "u"), lambda i: press(i, "U")])  # fmt: skip
def test_undo_withdraws_the_last_vote_and_shows_its_item_again(path, undo):
    interface = start(path)
    interface.vote("certain")
    interface.vote("certain")
    undo(interface)
    assert lines(path)[-1] == ("fern||2", "a1", "withdrawn")
    assert interface.item == item(2)
    assert "1 of 3" in on_screen(interface)
    interface.vote("impossible")
    assert interface.item == item(3)


def test_undo_reaches_back_into_an_earlier_session_and_ends_with_the_first_vote(path):
    start(path).vote("certain")
    interface = start(path)
    interface.undo()
    assert interface.item == item(1)
    assert button(interface, "0  undo").disabled
    interface.undo()
    assert "no vote to take back" in on_screen(interface)
    assert len(lines(path)) == 2


def test_undo_shows_the_taken_back_item_even_where_an_earlier_one_is_open(path):
    start(path, numbers=(2,)).vote("certain")
    interface = start(path)
    assert interface.item == item(1)
    interface.undo()
    assert interface.item == item(2)
    interface.vote("uncertain")
    assert interface.item == item(1)


def test_when_all_is_done_the_screen_says_so_and_takes_no_vote(path):
    interface = start(path)
    for _ in range(3):
        interface.vote("certain")
    assert interface.item is None
    assert "All 3 items are done" in on_screen(interface)
    assert "3 of 3" in on_screen(interface)
    assert button(interface, "1  certain").disabled
    press(interface, "1")
    assert "nothing left" in on_screen(interface)
    assert len(lines(path)) == 3
    assert start(path).item is None
    press(interface, "0")
    assert interface.item == item(3)
    assert not button(interface, "1  certain").disabled


def test_a_second_window_of_the_same_annotator_does_not_vote_twice(path):
    first, second = start(path), start(path)
    first.vote("certain")
    second.vote("impossible")
    assert lines(path) == [("fern||1", "a1", "certain")]
    assert second.item == item(2)
    assert "had a vote already" in on_screen(second)


def test_text_from_data_is_shown_as_it_is_and_never_run(path):
    bad = "<script>alert('soil')</script> & <b>"
    screen = Screen("change", bad, bad, ("yes", "no"))
    interface = Annotator([item(1, goal=bad, steps=(bad, bad), statement=bad)], screen, path, "a1")
    shown = on_screen(interface)
    assert "<script" not in shown
    assert shown.count("&lt;script&gt;alert(&#x27;soil&#x27;)&lt;/script&gt; &amp; &lt;b&gt;") == 6


def test_the_step_that_is_asked_about_is_marked_and_only_that(path):
    marked = [line for line in on_screen(start(path)).split("<li") if "aria-current" in line]
    assert len(marked) == 1
    assert STEPS[0] in marked[0]
    whole = Annotator([item(0)], SCREEN, path, "a1")
    assert "aria-current" not in on_screen(whole)


def test_a_vote_that_cannot_be_saved_is_told_on_screen_and_the_item_stays(tmp_path):
    (tmp_path / "file").write_text("no folder")
    interface = start(tmp_path / "file" / "votes.jsonl")
    button(interface, "1  certain").click()
    assert "Not saved" in on_screen(interface)
    assert "votes.jsonl" in on_screen(interface)
    assert interface.item == item(1)
    assert "0 of 3" in on_screen(interface)
    (tmp_path / "file").unlink()
    press(interface, "1")
    assert "Not saved" not in on_screen(interface)
    assert interface.item == item(2)


def test_an_undo_that_cannot_be_saved_is_told_on_screen_and_the_item_stays(path, monkeypatch):
    interface = start(path)
    interface.vote("certain")

    def refuse(*_):
        raise OSError("the disk is full")

    monkeypatch.setattr("lib.annotation.append_vote", refuse)
    interface.undo()
    assert "Not taken back: the disk is full" in on_screen(interface)
    assert interface.item == item(2)


def test_a_votes_file_that_somebody_broke_meanwhile_is_told_on_screen(path):
    interface = start(path)
    interface.vote("certain")
    with open(path, "a") as file:
        file.write("half a li\n")
    interface.vote("certain")
    assert "Not saved" in on_screen(interface)
    assert "line 2: not JSON" in on_screen(interface)
    assert interface.item == item(2)
    with pytest.raises(ValueError, match="line 2: not JSON"):
        start(path)


def test_a_vote_of_another_scale_in_the_file_is_refused(path):
    start(path, "a2", Screen("change", "", "?", ("yes", "no"))).vote("yes")
    with pytest.raises(ValueError, match=r"line 1: vote 'yes' on 'fern\|\|1'; stage change knows certain"):
        start(path)


def test_it_refuses_what_it_cannot_ask_about(path):
    with pytest.raises(ValueError, match="none to vote on"):
        start(path, numbers=())
    with pytest.raises(ValueError, match=r"'fern\|\|2' is the id of more than one"):
        start(path, numbers=(1, 2, 2))
    with pytest.raises(ValueError, match="annotator='  ': give everyone who votes a short id"):
        start(path, "  ")
    with pytest.raises(ValueError, match="vote 'perhaps': stage change knows certain, uncertain, impossible"):
        start(path).vote("perhaps")
    assert not path.exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"current": 4}, "current is 4"), ({"current": -1}, "current is -1"), ({"id": ""}, "id ''"),
     ({"id": "fern||1 "}, "without spaces")],
)  # fmt: skip
def test_an_item_refuses_a_step_that_it_does_not_have_and_an_id_that_would_not_be_found_again(changes, message):
    with pytest.raises(ValueError, match=message.replace("|", r"\|")):
        item(1, **changes)


@pytest.mark.parametrize(
    ("stage", "choices"),
    [("change", ("yes",)), ("change", ("yes", "yes")), ("change", tuple("abcdefghij")), ("change", ("yes", "")),
     ("change", ("yes", "withdrawn")), ("", ("yes", "no")), (" change", ("yes", "no"))],
)  # fmt: skip
def test_a_screen_refuses_choices_that_a_votes_file_cannot_hold(stage, choices):
    with pytest.raises(ValueError, match="screen "):
        Screen(stage, "", "?", choices)


def test_as_the_last_expression_of_a_cell_it_is_a_widget_and_a_line_of_text(path):
    bundle = start(path)._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert bundle["text/plain"] == "Annotator of stage 'change' for 'a1': 0 of 3"


def test_the_picture_holds_every_text_and_nothing_leaves_the_page():
    long = "Water it with a can that " + "pours gently and " * 20 + "https://garden.example/" + "leaf" * 60
    asked = item(2, steps=(*STEPS, long, "Pay $3 and $4."))
    screen = Screen("change", "Judge alone.\nIn doubt, say no.", long, ("certain", "far too " * 30 + "long", "no"))
    figure = pictures.screen(asked, screen)
    figure.canvas.draw()
    texts = figure.axes[0].texts
    page = figure.bbox
    for text in texts:
        box = text.get_window_extent()
        assert page.x0 < box.x0 < box.x1 < page.x1, text.get_text()
        assert page.y0 < box.y0 < box.y1 < page.y1, text.get_text()
    drawn = "".join("".join(text.get_text().split()) for text in texts)
    wanted = [asked.goal, *asked.steps, asked.statement, screen.instructions, screen.question]
    for text in [*wanted, "► 2.", "1 certain", f"2 {screen.choices[1]}", "3 no"]:
        assert "".join(text.split()) in drawn


def test_the_picture_of_a_whole_text_marks_no_step_and_needs_no_statement():
    drawn = [text.get_text() for text in pictures.screen(item(0, statement=""), SCREEN).axes[0].texts]
    assert STEPS[0] in drawn
    assert not any("►" in text for text in drawn)
