"""Attention on memory, and what is made of a run with one: figures, paired comparison, ablation table."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from lib import attention, plots, results
from lib.data import Procedure, StateChange, Step, load
from lib.decoding import with_predictions
from lib.intervals import paired_difference
from lib.memory import slot_counts
from lib.metrics import openpi_f1, report
from lib.models import MemoryBart, load_seq2seq
from lib.results import Run
from lib.rows import ablation_frame, trained_rows


@pytest.fixture(scope="module")
def model():
    bart, tokenizer = load_seq2seq("tiny", dropout=0.0)
    return MemoryBart.from_bart(bart), tokenizer


@pytest.fixture
def procedure():
    return load("openpi-c", "test", "sample")[0]


def test_a_change_looks_only_at_slots_that_are_there(model, procedure):
    steps = attention.memory_attention(*model, procedure)
    counts = slot_counts([step.changes for step in procedure.steps])
    assert [len(step.slots) for step in steps] == counts
    assert [step.weights.shape for step in steps] == [
        (len({(c.entity, c.attribute) for c in step.changes}), count)
        for step, count in zip(procedure.steps, counts, strict=True)
    ]
    assert all((step.weights.sum(1) < 1).all() and (step.weights > 0).all() for step in steps[1:] if step.changes)
    assert model[0].config._attn_implementation == "sdpa"


def test_attention_goes_to_the_slot_whose_key_a_query_meets(model, procedure):
    net, tokenizer = model
    net = MemoryBart.from_bart(load_seq2seq("tiny", dropout=0.0)[0])
    with torch.no_grad():
        for layer in net.model.decoder.layers:  # every query to memory meets every key with a high score
            layer.encoder_attn.k_proj.memory.weight.zero_()
            layer.encoder_attn.k_proj.memory.bias.fill_(1.0)
            layer.encoder_attn.q_proj.memory.weight.zero_()
            layer.encoder_attn.q_proj.memory.bias.fill_(10.0)
    step = attention.memory_attention(net, tokenizer, procedure)[1]
    assert step.weights.sum(1) == pytest.approx(1, abs=1e-4)
    assert step.weights[0] == pytest.approx(1 / len(step.slots), abs=1e-4)


def test_unreadable_predictions_give_way_to_gold_changes(model, procedure):
    silent = with_predictions([procedure], [[["gibberish"]] * len(procedure.steps)])
    assert all(step.changes == () for step in silent[0].steps)
    found = attention.of_procedures(*model, [procedure], silent)[procedure.id]
    assert found["changes"] == "gold"
    said = with_predictions([procedure], [[list(step.sentences) for step in procedure.steps]])
    again = attention.of_procedures(*model, [procedure], said)[procedure.id]
    assert again["changes"] == "predicted"
    assert [step["slots"] for step in again["steps"]] == [step["slots"] for step in found["steps"]]


def test_the_attention_figure_shows_every_change_and_leaves_out_what_is_not_there(model, procedure):
    records = attention.as_record(attention.memory_attention(*model, procedure))
    figure = plots.memory_attention(records, "title")
    matrix = figure.axes[0].images[0].get_array()
    rows = [(step, weights) for step in records if step["slots"] for weights in step["weights"]]
    assert matrix.shape == (len(rows), len(records[-1]["slots"]))
    for row, (step, weights) in zip(np.ma.filled(matrix, np.nan), rows, strict=True):
        assert row[: len(weights)] == pytest.approx(100 * np.array(weights))
        assert np.isnan(row[len(step["slots"]) :]).all()
    silent = [record | {"changes": [], "weights": []} for record in records]
    assert "no change" in plots.memory_attention(silent).axes[0].texts[0].get_text()


def test_the_slots_figure_draws_means_over_the_procedures_that_have_a_step():
    figure = plots.slots_over_steps({"gold": [[0, 2, 4], [0, 4]], "predicted": [[0, 0, 0], [0, 1]]})
    gold, predicted = (line.get_ydata() for line in figure.axes[0].lines)
    assert gold.tolist() == [0, 3, 4]
    assert predicted.tolist() == [0, 0.5, 0]


def test_predictions_become_changes_as_far_as_they_can_be_parsed():
    procedure = Procedure("x/A", "A", (Step(1, "a", ()), Step(2, "b", ())))
    sentence = "size of pot was small before and large afterwards"
    told = with_predictions([procedure], [[[sentence, "of was before afterwards"], []]])[0]
    assert told.steps[0].changes == (StateChange("pot", "size", "small", "large"),)
    assert told == replace(
        procedure, steps=(replace(procedure.steps[0], changes=told.steps[0].changes), procedure.steps[1])
    )


def test_a_paired_difference_is_surer_than_two_intervals():
    rng = np.random.default_rng(0)
    theirs = rng.normal(0.5, 0.3, 60)
    ours = theirs + rng.normal(0.02, 0.01, 60)
    groups = [f"p{step // 3}" for step in range(60)]
    difference, low, high = paired_difference(ours, theirs, groups)
    assert difference == pytest.approx(np.mean(ours - theirs))
    assert 0.01 < low < difference < high < 0.03
    assert paired_difference(theirs, theirs, groups) == (0, 0, 0)


def test_two_models_are_compared_on_the_same_steps_whatever_their_order():
    ids = ["x/A||1", "x/A||2", "x/B||1"]
    gold = [["size of pot was small before and large afterwards"]] * 3
    perfect = {"original_exact": openpi_f1(gold, gold, "exact", ids=ids)}
    other = {"ids": ids[::-1], "original_exact": [[1, 1, 1], [0, 0, 0], [0, 0, 0]]}
    table = report.compare(perfect, other)
    assert table.loc["original_exact", "difference"] == pytest.approx(200 / 3)
    assert table.loc["original_exact", "other F1"] == pytest.approx(100 / 3)
    assert table.loc["original_exact", "verdict"] == "no difference shown"  # two procedures, one without a difference
    zeros = other | {"original_exact": [[0, 0, 0]] * 3}
    assert report.compare(perfect, zeros).verdict.tolist() == ["better"]
    with pytest.raises(ValueError, match="3 steps here, 2 there"):
        report.compare(perfect, other | {"ids": ids[:2]})
    assert report.f1_table({"a": perfect}).loc["original_exact", "a"] == 100


def test_ablations_stand_in_a_table_of_their_own_and_fill_no_row(tmp_path, monkeypatch):
    monkeypatch.setattr("lib.paths.OUTPUTS", tmp_path)
    score = {"f1": 0.25}
    scores = {"original_rouge_l": score, "cluster_bleu": score}
    facts = {
        "row": "BART + EMem", "dataset": "openpi-c", "parameters_of_model": 2_000_000,
        "training": {"updates": 400, "best_dev_loss": 2.5}, "decoding": {"outputs_per_step": 4.0},
    }  # fmt: skip
    for run, ablation in (("emem", ""), ("short", "queries shared")):
        made = Run("04_emem", {"profile": "smoke", "run": run, "ablation": ablation})
        made.save_metrics({"model": scores, "gold_history": scores}, **facts)
        made.finish()
    assert list(trained_rows("smoke", ["04_emem"], "openpi-c")) == ["BART + EMem"]
    frame = ablation_frame("smoke").set_index("what is changed")
    assert list(frame.index) == ["nothing (BART + EMem)", "queries shared"]
    assert frame.loc["queries shared", "cluster BLEU, gold history"] == 25
    assert frame["parameters (M)"].tolist() == [2, 2]
    assert results.finished_runs("smoke", "04_emem") == ["emem", "short"]
    assert ablation_frame("paper").empty
