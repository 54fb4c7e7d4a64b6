import pytest

from lib.text import (
    NO_CHANGE,
    SplitReport,
    StateChange,
    is_no_change,
    parse_sentence,
    prompt,
    split_answer,
    to_answer,
    to_sentence,
)

COMMA = (
    "location of cup was on shelf, top before and on table afterwards, "
    "heat of wok was lukewarm before and scorching afterwards"
)


def test_prompt_without_past_steps_is_goal_step_and_question():
    assert (
        prompt("Boil an Egg", [], "Fill a pot with water.") == "Boil an Egg. Fill a pot with water. Now, what happens?"
    )


def test_prompt_with_states_puts_the_changes_behind_their_step():
    text = prompt("Boil an Egg", ["Fill a pot with water."], "Put it on the stove.", states=[[]])
    assert (
        text == "Boil an Egg. Fill a pot with water. There will be no change. Put it on the stove. Now, what happens?"
    )
    change = StateChange("teapot", "fullness", "drained", "brimming")
    text = prompt("Boil an Egg", ["Fill it."], "Heat it.", states=[[change, change]])
    one = "fullness of teapot was drained before and brimming afterwards"
    assert text == f"Boil an Egg. Fill it. {one}, {one} Heat it. Now, what happens?"


def test_prompt_for_an_entity_ends_with_it_and_the_goal_may_be_absent():
    assert prompt("Boil an Egg", [], "Fill it.", entity="pot").endswith("Now, what happens to pot?")
    assert prompt("", ["Fill it."], "Heat it.") == "Fill it. Heat it. Now, what happens?"


def test_prompt_refuses_states_that_do_not_fit_the_past_steps():
    with pytest.raises(ValueError, match="1 entries for 2 past steps"):
        prompt("Boil an Egg", ["a", "b"], "c", states=[[]])


def test_sentence_and_parts_round_trip():
    change = StateChange("parsnip", "shape", "whole", "in ribbons")
    assert parse_sentence(to_sentence(change)) == change
    assert to_answer([change, change]) == f"{to_sentence(change)}, {to_sentence(change)}"
    assert to_answer([]) == NO_CHANGE


@pytest.mark.parametrize(
    ("sentence", "parts"),
    [
        ("level of heat of pan was low before and high afterwards", ("heat of pan", "level", "low", "high")),
        ("state of what was left was wet before and dry afterwards", ("what", "state", "left was wet", "dry")),
        ("state of pans were wet before and dry afterwards", None),
        ("state of pan was wet before, and dry afterwards.", None),
        ("state of pan was wet before and afterwards", None),
    ],
)
def test_released_parser_cuts_at_the_first_separators(sentence, parts):
    parsed = parse_sentence(sentence)
    assert parsed == (parts and StateChange(*parts))


def test_safe_parser_reads_were_and_stray_punctuation():
    assert parse_sentence("state of pans were wet before, and dry afterwards.", "safe") == StateChange(
        "pans", "state", "wet", "dry"
    )
    assert parse_sentence("state of pan was wet before and dry afterwards then more", "safe") is None


def test_released_preset_loses_a_change_with_a_comma_and_counts_it():
    kept, report = split_answer(COMMA, return_report=True)
    assert kept == ["heat of wok was lukewarm before and scorching afterwards"]
    assert report == SplitReport(kept=1, fragments_dropped=2, unparseable=0, no_change=0)


def test_safe_preset_keeps_a_change_with_a_comma():
    kept, report = split_answer(COMMA, "safe", return_report=True)
    assert kept[0] == "location of cup was on shelf, top before and on table afterwards"
    assert report == SplitReport(kept=2, fragments_dropped=0, unparseable=0, no_change=0)


@pytest.mark.parametrize("text", ["softness waste beforehand afterwards", "it is hot"])
def test_safe_preset_tells_unparseable_text_from_no_change(text):
    kept, report = split_answer(text, "safe", return_report=True)
    assert kept == []
    assert (report.unparseable, report.no_change) == (1, 0)


def test_released_keyword_filter_is_a_substring_test():
    assert split_answer("softness waste beforehand afterwards") == ["softness waste beforehand afterwards"]
    _, report = split_answer("it is hot", return_report=True)
    assert (report.unparseable, report.no_change) == (1, 0)


@pytest.mark.parametrize("preset", ["released", "safe"])
def test_no_change_gives_no_sentence_and_is_counted(preset):
    assert split_answer("There will be no change.", preset, return_report=True) == ([], SplitReport(0, 0, 0, 1))
    assert split_answer("", preset, return_report=True) == ([], SplitReport(0, 0, 0, 0))
    assert is_no_change(" THERE will be no change at all")


def test_safe_preset_drops_text_before_the_first_change():
    text = "it is hot, heat of wok was lukewarm before and scorching afterwards"
    assert split_answer(text, "safe") == ["heat of wok was lukewarm before and scorching afterwards"]


def test_unknown_preset_is_refused():
    for call in (split_answer, parse_sentence):
        with pytest.raises(ValueError, match="preset='parity'"):
            call("x", "parity")
