import json
import random
from collections import Counter

import pytest

from lib import cleaning, clues, heuristics, plots
from lib.cleaning import CHOICES, Decisions, Rules, change_id, clean, derive_decisions, item_ids, screens
from lib.data import Procedure, StateChange, Step, load_openpi_c, load_splits
from lib.data.lines import read_jsonl
from lib.votes import Vote, append_vote, read_votes

SPLITS = ("train", "dev", "test")


def change(entity, after="wet"):
    return StateChange(entity, "state", "dry", after)


def procedure(steps=4, url="www.example.org/Wash-a-Cup", changes=2):
    """Return a procedure of steps with as many changes each."""
    made = tuple(
        Step(n, f"Do thing {n}.", tuple(change(f"cup {n}.{k}") for k in range(changes))) for n in range(1, steps + 1)
    )
    return Procedure(url, "Wash a Cup", made)


def unanimous(procedures, **against):
    """Return enough votes for every item, all for it but for the items in `against` (id -> list of votes)."""
    votes = []
    for stage, items in item_ids(procedures).items():
        for item in items:
            given = against.get(item, [CHOICES[stage][0]] * (2 if stage == "change" else 3))
            votes += [Vote(stage, item, f"a{index}", vote) for index, vote in enumerate(given)]
    return votes


@pytest.fixture(scope="module")
def sample_raw():
    return [p for procedures in load_splits("openpi", "sample").values() for p in procedures]


@pytest.fixture(scope="module")
def sample_votes(sample_raw):
    from lib.paths import SAMPLE

    return read_votes(SAMPLE / "votes.jsonl", CHOICES, item_ids(sample_raw))


# Votes -----------------------------------------------------------------------------------------------------------


def write(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def row(item="u||1", vote="valid", annotator="a1", stage="step"):
    return {"stage": stage, "item": item, "annotator": annotator, "vote": vote}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([row(item="u||9")], r"votes.jsonl, line 1: no step has the id 'u\|\|9'"),
        ([row(), row(vote="invalid")], r"line 2: 'a1' votes on 'u\|\|1' a second time, first in line 1"),
        ([row(vote="maybe")], "line 1: vote 'maybe' on 'u.*stage step knows valid, invalid"),
        ([row(stage="colour")], "line 1: stage 'colour'; expected one of procedure, step, change"),
        ([row(annotator=" ")], "line 1: no annotator"),
        ([row(vote="withdrawn")], "line 1: 'a1' withdraws a vote on 'u.*' that was never given"),
        ([{"stage": "step", "item": "u||1", "vote": "valid"}], "line 1: no field 'annotator'"),
        ([row(), "valid"], "line 2: a JSON str, expected an object"),
    ],
)
def test_a_votes_file_with_a_fault_is_refused_with_its_line(tmp_path, rows, message):
    path = write(tmp_path / "votes.jsonl", *rows)
    with pytest.raises(ValueError, match=message):
        read_votes(path, CHOICES, {"step": ["u||1"]})


def test_votes_are_appended_and_a_withdrawn_one_does_not_stand(tmp_path):
    path = tmp_path / "new" / "votes.jsonl"
    first = Vote("step", "u||1", "a1", "valid")
    for vote in (first, Vote("step", "u||1", "a2", "invalid"), Vote("step", "u||1", "a1", "withdrawn")):
        append_vote(path, vote)
    assert read_votes(path, CHOICES) == [Vote("step", "u||1", "a2", "invalid")]
    append_vote(path, first)
    assert read_votes(path, CHOICES)[-1] == first
    assert len(path.read_text().splitlines()) == 4


def test_a_file_that_ends_within_a_line_keeps_its_lines_apart(tmp_path):
    path = tmp_path / "votes.jsonl"
    path.write_text(json.dumps(row()))  # no newline, as an editor may leave it
    append_vote(path, Vote("step", "u||2", "a1", "valid"))
    assert [vote.item for vote in read_votes(path, CHOICES)] == ["u||1", "u||2"]


def test_a_vote_that_cannot_be_saved_says_so(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"the vote on 'u\|\|1' was not saved to .*file/votes.jsonl"):
        append_vote(tmp_path / "file" / "votes.jsonl", Vote("step", "u||1", "a1", "valid"))


# Stages ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stage", "item", "given", "gone"),
    [
        ("procedure", "{u}", ["not_procedure", "procedure", "procedure"], False),
        ("procedure", "{u}", ["not_procedure", "not_procedure", "procedure"], True),
        ("step", "{u}||2", ["valid", "invalid", "valid"], False),
        ("step", "{u}||2", ["invalid", "invalid", "valid"], True),
        ("change", "{u}||2||1", ["certain", "certain"], False),
        ("change", "{u}||2||1", ["certain", "uncertain"], True),
        ("change", "{u}||2||1", ["impossible", "certain"], True),
    ],
)
def test_an_item_is_dropped_at_the_papers_threshold(stage, item, given, gone):
    raw = [procedure()]
    item = item.format(u=raw[0].id)
    result = clean(raw, unanimous(raw, **{item: given}))
    assert ((stage, item) in [(d.kind, d.item) for d in result.dropped if d.stage == stage]) == gone
    assert bool(result.dropped) == gone


def test_what_remains_is_renumbered_and_what_went_is_recorded_with_its_reason():
    raw = [procedure()]
    url = raw[0].id
    result = clean(raw, unanimous(raw, **{f"{url}||2": ["invalid", "invalid", "valid"]}))
    assert [(step.number, step.text) for step in result.procedures[0].steps] == [
        (1, "Do thing 1."), (2, "Do thing 3."), (3, "Do thing 4."),
    ]  # fmt: skip
    reasons = {item.item: item.reason for item in result.dropped}
    assert reasons == {
        f"{url}||2": "2 of 3 say invalid",
        f"{url}||2||1": "went with its step",
        f"{url}||2||2": "went with its step",
    }
    assert result.flow["steps"].tolist() == [4, 4, 3, 3, 3]


def test_rules_drop_empty_steps_first_and_then_short_procedures():
    raw = [procedure(3, changes=1)]
    url = raw[0].id
    votes = unanimous(raw, **{f"{url}||1||1": ["impossible", "certain"]})
    result = clean(raw, votes)
    assert result.procedures == []
    stages = {item.item: (item.stage, item.reason) for item in result.dropped}
    assert stages[f"{url}||1||1"] == ("change", "1 of 2 say impossible")
    assert stages[f"{url}||1"] == ("rules", "no state change left")
    assert stages[url] == ("rules", "2 steps left, fewer than 3")
    assert stages[f"{url}||2"] == ("rules", "went with its procedure")
    assert len(clean(raw, votes, rules=Rules(minimum_steps=2)).procedures[0].steps) == 2
    assert len(clean(raw, votes, rules=Rules(drop_empty_steps=False)).procedures[0].steps) == 3


def test_missing_and_too_few_votes_are_errors_unless_kept():
    raw = [procedure()]
    url = raw[0].id
    votes = unanimous(raw)
    without = [vote for vote in votes if vote.item != f"{url}||3"]
    with pytest.raises(ValueError, match=r"step .* has 0 of the 3 votes that it needs: .* or pass missing="):
        clean(raw, without)
    assert clean(raw, without, missing="keep").procedures == raw
    with pytest.raises(ValueError, match="has 0 of the 3 votes"):
        clean(raw)
    with pytest.raises(ValueError, match=r"has 2 of the 3 votes that it needs: .* lower Rules\(step_votes=...\)"):
        clean(raw, [vote for vote in votes if (vote.item, vote.annotator) != (f"{url}||3", "a0")], missing="keep")
    with pytest.raises(ValueError, match="'a0' votes on step .* twice"):
        clean(raw, [*votes, votes[3]])
    with pytest.raises(ValueError, match="no step has the id"):
        clean(raw, [*votes, Vote("step", f"{url}||9", "a0", "valid")])
    assert clean([]).procedures == clean([], []).procedures == []


def test_bad_arguments_are_named():
    raw = [procedure()]
    with pytest.raises(ValueError, match="votes or decisions, not both"):
        clean(raw, [], Decisions({}, {}, {}))
    with pytest.raises(ValueError, match="missing='drop': expected error or keep"):
        clean(raw, [], missing="drop")
    with pytest.raises(ValueError, match="order has words; stages: procedure, step, change"):
        Rules(order=("words",))
    with pytest.raises(ValueError, match="has no decision"):
        clean(raw, decisions=Decisions({}, {}, {}))
    with pytest.raises(ValueError, match="is 'gone', expected kept or dropped"):
        clean(raw, decisions=Decisions({raw[0].id: "gone"}, {}, {}), missing="keep")


def test_order_of_stages_and_thresholds_are_parameters(sample_raw):
    raw = [procedure()]
    url = raw[0].id
    votes = unanimous(raw, **{f"{url}||2": ["invalid", "valid", "valid"], f"{url}||2||1": ["certain", "impossible"]})
    assert len(clean(raw, votes, rules=Rules(step_against=1)).procedures[0].steps) == 3
    assert not clean(raw, votes, rules=Rules(change_against=2)).dropped
    first = clean(raw, votes, rules=Rules(order=("change", "step", "procedure"))).dropped[0]
    assert (first.stage, first.item) == ("change", f"{url}||2||1")
    only = clean(sample_raw, [], missing="keep", rules=Rules(order=()))
    assert {item.stage for item in only.dropped} == {"rules"}


def test_cleaning_twice_changes_nothing_and_the_order_of_votes_does_not_matter(sample_raw, sample_votes):
    once = clean(sample_raw, sample_votes)
    for seed in range(3):
        mixed = random.Random(seed).sample(sample_votes, len(sample_votes))
        again = clean(sample_raw, mixed)
        assert again.procedures == once.procedures
        assert again.dropped == once.dropped
    twice = clean(once.procedures, once.votes)
    assert twice.procedures == once.procedures
    assert twice.dropped == []
    assert clean(once.procedures, missing="keep").procedures == once.procedures


# The sample ------------------------------------------------------------------------------------------------------


def test_every_planted_problem_is_dropped_at_its_stage_and_for_its_reason(sample, sample_raw, sample_votes):
    result = clean(sample_raw, sample_votes)
    dropped = {item.item: item for item in result.dropped}
    sentences = {
        (f"{p.id}||{s.number}", sentence): change_id(p.id, s.number, k)
        for p in sample_raw for s in p.steps for k, sentence in enumerate(s.sentences, start=1)
    }  # fmt: skip
    seen = Counter()
    for _, planted in read_jsonl(sample / "problems.jsonl"):
        kind = planted["kind"]
        if kind == "not_procedure":
            item, stage, reason = planted["procedure"], "procedure", "say not_procedure"
        elif kind in {"out_of_order", "not_executable"}:
            item, stage, reason = planted["step"], "step", "say invalid"
        elif kind == "no_change":
            item, stage, reason = planted["step"], "rules", "no state change left"
        else:
            item, stage, reason = sentences[planted["step"], planted["answer"]], "change", f"say {kind}"
        found = dropped[item]
        if found.reason.startswith("went with"):  # a change of a text that is no procedure
            assert found.stage == "procedure"
            continue
        seen[kind] += 1
        assert found.stage == stage, planted
        assert found.reason.endswith(reason), (planted, found)
    assert seen == {
        "uncertain": 12, "impossible": 11, "not_procedure": 3, "out_of_order": 2, "not_executable": 3, "no_change": 2,
    }  # fmt: skip


def test_the_cleaned_sample_is_the_one_that_is_bundled(sample, sample_raw, sample_votes):
    bundled = [p for split in SPLITS for p in load_openpi_c(split, root=sample)]
    result = clean(sample_raw, sample_votes)
    same = cleaning.compare(result.procedures, bundled)
    assert same == {"procedures": (24, 24), "steps": (108, 108), "state changes": (399, 399)}
    assert len(result.procedures) == 24
    derived = derive_decisions(sample_raw, bundled)
    assert clean(sample_raw, decisions=derived).procedures == result.procedures
    assert derived.found == {"identical": 399}


def test_a_cleaned_set_is_written_in_the_released_format_and_read_again(tmp_path, sample_raw, sample_votes):
    result = clean(sample_raw, sample_votes)
    text, left_out = cleaning.to_openpi_c(result.procedures)
    (tmp_path / "openpi-c").mkdir()
    (tmp_path / "openpi-c" / "train.jsonl").write_text(text, encoding="utf-8")
    assert load_openpi_c("train", root=tmp_path) == result.procedures
    assert left_out == []
    odd = Procedure("u", "U", (Step(1, "Look.", (change("cup"),), ("nothing that parses",)),))
    assert cleaning.to_openpi_c([odd])[1] == ["u||1: nothing that parses"]


def test_entities_with_separators_in_them_stay_apart(tmp_path):
    names = ("a__b", "hot dog", "hot-dog", "a||b", "hot dog")
    steps = tuple(Step(n, f"Do thing {n}.", tuple(change(name) for name in names)) for n in (1, 2, 3))
    raw = [Procedure("u", "u", steps)]
    assert len(set(item_ids(raw)["change"])) == 15
    result = clean(raw, unanimous(raw, **{"u||2||3": ["impossible", "certain"]}))
    assert [c.entity for c in result.procedures[0].steps[1].changes] == ["a__b", "hot dog", "a||b", "hot dog"]
    (tmp_path / "openpi-c").mkdir()
    (tmp_path / "openpi-c" / "test.jsonl").write_text(cleaning.to_openpi_c(result.procedures)[0])
    assert load_openpi_c("test", root=tmp_path)[0].steps == result.procedures[0].steps


# Agreement -------------------------------------------------------------------------------------------------------


def test_agreement_equals_published_worked_examples():
    # Fleiss (1971) as worked in Wikipedia's article: 14 raters, 10 items, 5 categories, kappa 0.210.
    table = [
        [0, 0, 0, 0, 14], [0, 2, 6, 4, 2], [0, 0, 3, 5, 6], [0, 3, 9, 2, 0], [2, 2, 8, 1, 1],
        [7, 7, 0, 0, 0], [3, 2, 6, 3, 0], [2, 5, 3, 2, 2], [6, 5, 2, 1, 0], [0, 2, 2, 3, 7],
    ]  # fmt: skip
    votes = [
        Vote("s", f"item {i}", f"rater {sum(counts[:c]) + k}", f"c{c}")
        for i, counts in enumerate(table) for c, n in enumerate(counts) for k in range(n)
    ]  # fmt: skip
    row = cleaning.agreement(votes, {"s": [f"c{c}" for c in range(5)]}).loc["s"]
    assert row["fleiss_kappa"] == pytest.approx(0.210, abs=5e-4)
    assert row["unanimous"] == pytest.approx(0.1)
    assert row["items"] == 10


def test_raw_agreement_flatters_where_one_answer_is_frequent():
    # Two annotators each call a different tenth of 100 items invalid: they agree on 80% and on no invalid item.
    votes = [
        Vote("step", f"u||{i}", name, "invalid" if i in wrong else "valid")
        for name, wrong in (("a", range(10)), ("b", range(10, 20)))
        for i in range(100)
    ]
    row = cleaning.agreement(votes, CHOICES).loc["step"]
    assert row["unanimous"] == 0.8
    assert row["majority share"] == 0.9
    assert row["fleiss_kappa"] < 0
    assert row["krippendorff_alpha"] < 0


def test_agreement_of_one_answer_only_and_of_nobody():
    votes = [Vote("step", "u||1", name, "valid") for name in "ab"]
    row = cleaning.agreement(votes, CHOICES).loc["step"]
    assert row["unanimous"] == 1.0
    assert row[["fleiss_kappa", "krippendorff_alpha"]].isna().all()
    assert cleaning.agreement([], CHOICES).empty
    assert cleaning.agreement(votes[:1], CHOICES).empty


# The release -----------------------------------------------------------------------------------------------------


def test_steps_are_joined_by_text_in_order_not_by_number():
    twice = Procedure("u", "U", (
        Step(1, "Turn it over.", (change("cup"), change("lid"))),
        Step(2, "Wipe it.", (change("cloth"),)),
        Step(3, "Turn it over.", (change("mug"),)),
        Step(4, "######Put it away.############", (change("shelf"),)),
    ))  # fmt: skip
    released = Procedure("u", "U", (
        Step(1, "Wipe it.", (change("cloth"),)),
        Step(2, "Turn it over.", (change("mug"),)),
        Step(3, "Put it away.", (change("shelf"),)),
    ))  # fmt: skip
    decisions = derive_decisions([twice], [released])
    assert decisions.steps == {"u||1": "dropped", "u||2": "kept", "u||3": "kept", "u||4": "kept"}
    assert decisions.texts == {"identical": 2, "markup removed": 1}
    assert clean([twice], decisions=decisions).procedures == [released]


def test_every_kind_of_remainder_is_told_apart():
    whole = ("cup", "lid", "mug")
    original = Procedure("u", "U", (
        Step(1, "One.", (change("cup", "lowasd"), change("lid"), change("jug", "in the cupboard over it"))),
        Step(2, "Two.", ()),
        Step(3, "Three.", tuple(map(change, whole))),
    ))  # fmt: skip
    released = Procedure("u", "U", (
        Step(1, "One.", (change("cup", "lowered"), change("jug", "in a cupboard over it"), change("tap"))),
        Step(2, "Two.", (change("sink"),)),
        Step(3, "Three.", (change("mug"), change("mug"))),
    ))  # fmt: skip
    decisions = derive_decisions([original], [released])
    assert decisions.found == {
        "`were` is `was` in the original": 1,
        "edited": 1,
        "not among the original step's answers": 2,  # the tap, and a duplicate that matches no second change
        "original step has no answers": 1,
        "identical": 1,
    }
    assert [decisions.changes[f"u||1||{k}"] for k in (1, 2, 3)] == ["kept", "dropped", "kept"]
    assert [decisions.changes[f"u||3||{k}"] for k in (1, 2, 3)] == ["dropped", "dropped", "kept"]


def test_bounds_say_what_is_known_of_each_stage():
    raw = [procedure(url="u"), procedure(url="v"), procedure(2, url="w")]
    kept = raw[0]
    released = Procedure("u", "U", (
        Step(1, "Do thing 1.", kept.steps[0].changes[:1]),
        Step(2, "Do thing 2.", kept.steps[1].changes),
        Step(3, "Do thing 3.", kept.steps[2].changes),
    ))  # fmt: skip
    counts = cleaning.bounds(raw, derive_decisions(raw, [released]))
    assert counts.loc["procedure"].tolist() == [0, 2, 3, 3, 1]  # w has too few steps whatever anybody votes
    assert counts.loc["step"].tolist() == [0, 1, 4, 4, 0]
    assert counts.loc["change"].tolist() == [1, 3, 6, 8, 0]
    assert cleaning.shares(counts).loc["change"].tolist() == [1 / 6, 3 / 8]


def test_a_release_of_other_data_is_refused():
    with pytest.raises(ValueError, match="1 released procedures are not in the original, such as v"):
        derive_decisions([procedure(url="u")], [procedure(url="v")])
    other = Procedure("u", "U", (Step(1, "Something else altogether.", (change("x"),)),))
    with pytest.raises(ValueError, match=r"released step u\|\|1 has no partner"):
        derive_decisions([procedure(url="u")], [other])


@pytest.mark.real_data
def test_derived_decisions_give_the_release_back_but_for_what_the_original_lacks():
    # Counted in the public files: a plain join finds 97.2 / 92.0 / 98.5% of the changes.
    expected = {
        "train": ({"identical": 13737, "were": 23, "edited": 6, "empty": 62, "absent": 15}, (13733, 13843)),
        "dev": ({"identical": 1117, "were": 0, "edited": 0, "empty": 37, "absent": 0}, (1117, 1154)),
        "test": ({"identical": 2013, "were": 13, "edited": 1, "empty": 0, "absent": 3}, (2013, 2030)),
    }
    raw, released = load_splits("openpi"), load_splits("openpi-c")
    derived = cleaning.derive_splits(raw, released)
    results = cleaning.clean_splits(raw, decisions=derived)
    for split, (found, reproduced) in expected.items():
        assert [derived[split].found[kind] for kind in cleaning.HOW] == list(found.values())
        same = cleaning.compare(results[split].procedures, released[split])
        assert same["state changes"] == reproduced
    assert cleaning.flow(results).loc["raw"].tolist() == [810, 4050, 29665]


@pytest.mark.real_data
def test_the_papers_third_of_removed_changes_lies_within_the_bounds():
    raw, released = load_splits("openpi"), load_splits("openpi-c")
    counts = sum(cleaning.bounds(raw[split], derive_decisions(raw[split], released[split])) for split in raw)
    shares = cleaning.shares(counts)
    assert shares.loc["change", "at least"] < 0.32 < shares.loc["change", "at most"]
    assert shares.loc["procedure", "at most"] == pytest.approx(147 / 810)


# Folders of one's own --------------------------------------------------------------------------------------------


def test_data_of_ones_own_is_a_folder_and_votes_have_to_be_named(tmp_path, sample, sample_raw):
    with pytest.raises(ValueError, match="votes is empty: only the sample brings votes"):
        cleaning.decide(load_splits("openpi", str(sample)), "votes", "", str(sample))
    results, votes = cleaning.decide(
        load_splits("openpi", str(sample)), "votes", str(sample / "votes.jsonl"), str(sample)
    )
    assert sum(len(result.procedures) for result in results.values()) == 24
    assert len(votes) == 1296
    with pytest.raises(ValueError, match="decisions='both': expected one of votes, release"):
        cleaning.decide({}, "both", "", "sample")
    raw = load_splits("openpi", "sample")
    with pytest.raises(ValueError, match=r"has no openpi-c/extra.jsonl"):
        cleaning.decide(raw | {"extra": []}, "release", "", "sample")
    with pytest.raises(ValueError, match="is in none of train"):
        cleaning.clean_splits({"train": sample_raw}, [Vote("step", "elsewhere||1", "a1", "valid")])
    with pytest.raises(FileNotFoundError, match="has no openpi data"):
        load_splits("openpi", str(tmp_path))


def test_later_stages_ask_only_about_what_complete_votes_leave(sample_raw, sample_votes):
    steps = cleaning.to_judge(sample_raw, sample_votes, "step")
    assert len(cleaning.to_judge(sample_raw, [], "step")) == 128
    assert len(steps) == 118
    assert len(cleaning.to_judge(sample_raw, sample_votes, "change")) == 429
    some = [vote for vote in sample_votes if vote.annotator == "ana"]
    assert len(cleaning.to_judge(sample_raw, some, "step")) == 128  # one vote of three decides nothing


def test_the_interface_has_a_tab_a_stage_and_asks_what_the_votes_leave(tmp_path, sample, sample_raw):
    note = screens.interface(sample_raw, "", "")
    assert "Set `annotator`" in note.data
    with pytest.raises(ValueError, match="votes is empty: name the file"):
        screens.interface(sample_raw, "", "zoe")
    path = tmp_path / "votes.jsonl"
    path.write_bytes((sample / "votes.jsonl").read_bytes())
    tab = screens.interface(sample_raw, str(path), "zoe")
    bars = [child.children[1].children[0] for child in tab.children]
    assert [bar.max for bar in bars] == [28, 118, 429]
    assert [bar.value for bar in bars] == [0, 0, 0]
    votes = [
        Vote("procedure", p.id, name, "not_procedure") for p in sample_raw for name in ("a1", "a2", "a3")
    ]  # fmt: skip
    path.write_text("".join(json.dumps(vars(vote)) + "\n" for vote in votes))
    assert "left nothing to judge" in screens.interface(sample_raw, str(path), "zoe").children[1].value


def test_what_a_screen_asks_about_stands_in_the_raw_numbering(sample_raw):
    for stage, ids in item_ids(sample_raw).items():
        assert [item.id for item in screens.screen_items(sample_raw, stage)] == ids
    with pytest.raises(ValueError, match="stage='word': expected one of procedure, step, change"):
        screens.screen_items(sample_raw, "word")
    titles = [title for title, _, _ in screens.problem_examples()]
    assert titles == ["(a) No procedure", "(b) A step out of order", "(c) An impossible state change"]


# Figures and heuristics ------------------------------------------------------------------------------------------


def test_the_flow_chart_shows_what_is_left_and_what_went(sample_raw, sample_votes):
    flow = cleaning.flow(cleaning.clean_splits({"all": sample_raw}, sample_votes))
    texts = [text.get_text() for text in plots.flow_chart(flow, cleaning.TITLES["votes"]).axes[0].texts]
    rows = ["28 procedures   128 steps   461 state changes", "3 procedures   10 steps   22 state changes"]
    rows += ["24 procedures   108 steps   399 state changes", "1 procedures   5 steps   7 state changes"]
    for row in rows:
        assert row in texts


def test_heuristics_are_tuned_on_one_split_and_scored_on_the_other(sample_raw, sample_votes):
    raw = load_splits("openpi", "sample")
    results = cleaning.clean_splits(raw, sample_votes)
    fates = {split: cleaning.as_decisions(raw[split], results[split]) for split in raw}
    found = heuristics.evaluate_splits(raw, fates)
    assert found.summary.index.tolist() == list(cleaning.STAGES)
    assert found.summary["items"].tolist()[0] == 7
    assert found.summary[["precision", "recall", "f1"]].stack().between(0, 1).all()
    assert found.features.groupby("stage").size().to_dict() == {"procedure": 10, "step": 12, "change": 10}
    suspects = heuristics.candidates(found, "change", 5)
    assert len(suspects) == 5
    assert found.scores["change"][suspects].is_monotonic_decreasing
    assert heuristics.evaluate_splits(raw, {"train": fates["train"]}).summary.empty


def test_heuristics_read_commands_and_mentions():
    tale = Procedure("u", "Wash a Cup", (
        Step(1, "Rinse the cup with water.", (change("cup"), change("spaceship"))),
        Step(2, "The cup is now wet.", (change("cup"),)),
    ))  # fmt: skip
    reader = clues.Reader([tale], "wheel:minilm", "")
    first, second = (clues.step_features(tale, index, reader) for index in (0, 1))
    assert (first["imperative"], second["imperative"]) == (1.0, 0.0)
    assert (first["states something"], second["states something"]) == (0.0, 1.0)
    said, unsaid = (clues.change_features(tale, 0, c, reader) for c in tale.steps[0].changes)
    assert (said["entity in the step"], unsaid["entity in the step"]) == (1.0, 0.0)
    assert said["entity like a noun phrase"] > unsaid["entity like a noun phrase"]
    assert clues.change_features(tale, 1, tale.steps[1].changes[0], reader)["entity changed before"] == 1.0
    assert clues.procedure_features(tale, reader)["neighbours share a noun"] == 1.0
