"""STEPS: the sets that are asked about, training rows, tables over seeds and rules, side by side."""

import json
import re
from collections import Counter

import numpy as np
import pandas as pd
import pytest

from lib import results
from lib.data.steps import MultiChoice, NextStep, load_steps
from lib.models import load_causal
from lib.paths import ROOT
from lib.steps import balanced, build_multi_choice, build_next_step, question, segments, shuffled
from lib.steps import tables as steps_tables
from lib.steps.report import choice_accuracy
from lib.steps.sets import BUILT, learning_rows, question_sets
from lib.steps.study import (
    Asked,
    DevScorer,
    ask,
    choice_records,
    choosing,
    class_shares,
    classification,
    over_seeds,
    to_jsonl,
)
from lib.steps.tasks import RULES, Choices, Classified, choices

ROWS = build_next_step([[f"{name} {n}" for n in range(6)] for name in "abc"])


def test_the_sample_is_asked_about_and_learned_from_without_released_files():
    sets = question_sets("sample")
    assert list(sets) == [BUILT]
    rows, choices = sets[BUILT]
    assert sum(row.label for row in rows) == len(choices)
    train = learning_rows("train", "sample")
    assert not {row.previous for row in train} & {row.previous for row in rows}
    assert sum(class_shares(train).values()) == pytest.approx(100)


def test_released_files_of_ones_own_are_read(tmp_path):
    for split in ("train", "dev"):
        path = tmp_path / "steps" / "next_step" / f"{split}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"a {split}\tb\tYes\na {split}\tc\tNo\n")
    assert [row.previous for row in learning_rows("dev", "sample", str(tmp_path))] == ["a dev", "a dev"]
    (tmp_path / "steps" / "next_step" / "train.txt").write_text("a\tb\tYes\na\tc\tMaybe\n")
    with pytest.raises(ValueError, match=r"train.txt, line 2: label 'Maybe', expected Yes or No"):
        learning_rows("train", "sample", str(tmp_path))
    with pytest.raises(ValueError, match="expected next_step or multi_choice, and test"):
        load_steps("next_step", "train")


def test_the_rarer_label_is_repeated_until_both_are_equally_frequent():
    kept = balanced(ROWS, 3)
    counts = Counter(row.label for row in kept)
    assert counts[True] == counts[False] == sum(not row.label for row in ROWS)
    times = Counter(row for row in kept if row.label)
    assert max(times.values()) - min(times.values()) <= 1
    assert set(kept) == set(ROWS)
    assert balanced(ROWS, 3) == kept != balanced(ROWS, 4)
    with pytest.raises(ValueError, match="both Yes and No are needed"):
        balanced([row for row in ROWS if row.label])


def test_segments_hold_every_question_with_its_answer():
    _, tokenizer = load_causal("tiny")
    rows, questions = segments(tokenizer, ROWS, 32, 1)
    assert questions == len(balanced(ROWS, 1))
    assert {len(row["input_ids"]) for row in rows} == {32}
    assert all(row["labels"] == row["input_ids"] for row in rows)
    text = tokenizer.decode([token for row in rows for token in row["input_ids"]])
    assert text.count("reasonable step in this recipe ? Yes") >= questions // 2 - 3
    with pytest.raises(ValueError, match="a segment needs 100000"):
        segments(tokenizer, ROWS, 100_000)


def test_options_change_places_and_the_answer_follows():
    rows = build_multi_choice([[f"{name} {n}" for n in range(8)] for name in "abcdefgh"])
    turned = shuffled(rows, 1)
    assert 0.2 < np.mean([row.answer for row in turned]) < 0.8
    for old, new in zip(rows, turned, strict=True):
        assert new.options[new.answer] == old.options[0]
        assert set(new.options) == set(old.options)
        assert new.line == old.line
    assert shuffled(rows, 1) == turned


def _asked(shots, seed, odds, free):
    return Asked(shots, seed, (), Classified(np.array(odds), free, 0, 0))


def test_numbers_are_means_over_seeds_with_their_deviation():
    rows = [NextStep("a", "b", True, 1), NextStep("a", "c", False, 2)]
    frame = classification(rows, [_asked(0, 0, [2.0, 1.0], 1.5), _asked(4, 0, [1, -1], 0), _asked(4, 1, [1, 2], 0)])
    zero = frame[frame.shots == 0].set_index("decision")
    assert zero.loc["P(Yes) > P(No)", ["sensitivity", "specificity", "yes_rate", "auc"]].tolist() == [1, 0, 1, 1]
    assert zero.loc["calibrated", ["sensitivity", "specificity", "g_mean"]].tolist() == [1, 1, 1]
    shown = over_seeds(frame).set_index(["shots", "decision"])
    assert shown.loc[(4, "P(Yes) > P(No)"), "specificity"] == "50.0 ± 70.7"
    assert shown.loc[(0, "calibrated"), "g_mean"] == "100.0"
    assert shown.seeds.tolist() == [1, 1, 2, 2]


def test_every_row_is_asked_after_every_number_of_demonstrations():
    model, tokenizer = load_causal("tiny")
    found = ask(model, tokenizer, ROWS[:5], build_next_step([[f"other {n}" for n in range(6)]]), "0,1,4", 3)
    assert [(one.shots, one.seed) for one in found] == [(0, 0), (1, 0), (1, 1), (1, 2), (4, 0), (4, 1), (4, 2)]
    assert [len(one.demonstrations) for one in found] == [0, 1, 1, 1, 4, 4, 4]
    assert all(one.found.log_odds.shape == (5,) for one in found)
    score = DevScorer(tokenizer, ROWS, "auto", 2048)(model)
    assert 0 <= score <= 1


def test_choices_are_counted_by_rule_with_ties_and_saved_without_text():
    rows = [MultiChoice(f"{name} .", ("x", "y"), place % 2, place + 1) for place, name in enumerate("abcd")]
    scores = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0], [1.0, 0.0]])
    frame = choosing(rows, Choices(dict.fromkeys(RULES, scores), 0, 0))
    assert frame["rule"].tolist() == list(RULES)
    assert frame["accuracy (%)"].tolist() == [62.5] * 4
    assert frame["ties"].tolist() == [1] * 4
    (record, *_) = choice_records(rows, Choices({"query_perplexity": scores}, 0, 0))
    assert record == {"line": 1, "answer": 0, "query_perplexity": [1.0, 0.0]}


def _metrics(row, trained, specificity, accuracy):
    numbers = {"sensitivity": 1.0, "specificity": specificity, "g_mean": specificity**0.5, "accuracy": 0.5,
               "yes_rate": 0.5, "auc": None}  # fmt: skip
    first = {"rule": "query_perplexity", "accuracy (%)": accuracy, "95% interval": "1-2", "rows": 3}
    return {
        "row": row, "family": "GPT-2", "parameters_of_model": 774e6, "training": trained,
        "class_shares": {"train": {"positive": 20.0, "negative": 80.0}},
        "scores": {
            "classification": {"STEPS": [{"shots": 0, "seed": 0, "decision": "P(Yes) > P(No)", **numbers}]},
            "multi_choice": {"STEPS": [first]},
        },
    }  # fmt: skip


def test_runs_are_set_beside_the_papers_statements():
    rows = {
        "GPT2-L": _metrics("GPT2-L", None, 0.04, 65.0),
        "GPT2-L fine-tuned": _metrics("GPT2-L fine-tuned", {"updates": 6000}, 0.64, 66.0),
        "another": _metrics("another", None, 0.5, 50.0),
    }
    cells = steps_tables.classification_cells(rows)
    assert cells["GPT2-L fine-tuned less zero-shot", "specificity"] == pytest.approx(60)
    assert cells["classes", "negative"] == 80
    assert ("BLOOM-7B1 less BLOOM-3B, zero-shot", "g_mean") not in cells
    accuracies, intervals = steps_tables.choice_cells(rows)
    assert accuracies == {("GPT2-L", "accuracy"): 65.0}
    assert intervals == {("GPT2-L", "accuracy"): "1-2"}
    published, ours = steps_tables.scaling(rows)
    assert len(published) == 9
    assert ours.values.tolist() == [["GPT-2", "GPT2-L", 774.0, 65.0]]
    assert steps_tables.model_names(rows)["GPT2-L fine-tuned"] == "774M, 6,000 updates"
    assert len(steps_tables.all_classified(rows)) == len(steps_tables.all_choices(rows)) == 3
    assert steps_tables.all_classified({}).empty


def test_two_runs_with_one_row_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "finished_runs", lambda profile, notebook: ["one", "two"])
    monkeypatch.setattr(results, "load", lambda *where: {"row": "GPT2-L"})
    with pytest.raises(ValueError, match="06_steps/two and another run both fill the row 'GPT2-L'"):
        steps_tables.runs_by_row("smoke")


def test_saved_scores_give_the_reported_accuracy(tmp_path):
    model, tokenizer = load_causal("tiny")
    rows = shuffled(question_sets("sample")[BUILT][1], 0)
    found = choices(model, tokenizer, rows)
    records = [json.loads(line) for line in to_jsonl(choice_records(rows, found)).splitlines()]
    saved = pd.DataFrame(records)
    for rule in RULES:
        again = choice_accuracy(np.array(saved[rule].tolist()), saved.answer)
        assert again == choice_accuracy(found.scores[rule], [row.answer for row in rows])


def test_the_harness_asks_the_same_question():
    text = (ROOT / "lm_eval_tasks" / "steps" / "steps_next_step.yaml").read_text(encoding="utf-8")
    asked = re.search(r'doc_to_text: "(.*)"', text).group(1)
    assert asked.replace("{{previous}}", "A . B").replace("{{candidate}}", "C") == question("A . B", "C")
