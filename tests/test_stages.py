"""What is made of two stages: rows of tables, ways of decoding, what is shown."""

import pandas as pd
import pytest

from lib import pictures, stages
from lib.data import load, scoring
from lib.decoding import TwoStageDecoder
from lib.generation import Decoding
from lib.metrics import openpi_f1
from lib.models import load_seq2seq
from lib.rows import model_names, outputs_cells, rates_frame, strategy_cells, trained_rows
from lib.stages import EntityStepDecoder, Stages, gold_first
from lib.strategies import compare
from lib.text import to_answer


@pytest.fixture(scope="module")
def sample():
    return load("openpi-c", "test", "sample")


@pytest.fixture(scope="module")
def perfect(sample):
    def answers(questions):
        return [
            to_answer([c for c in sample[q.procedure].steps[q.step].changes if c.entity == q.entity]) for q in questions
        ]

    decoder = TwoStageDecoder(gold_first, answers, "safe")
    return Stages(decoder, decoder.predict(sample))


def six(score):
    return {f"{kind}_{match}": score for kind in ("original", "cluster") for match in ("exact", "bleu", "rouge_l")}


def test_a_summary_has_a_row_a_stage(sample, perfect):
    flat = [sentences for by_step in perfect.predictions for sentences in by_step]
    score = openpi_f1(flat, flat, ids=list(scoring.from_procedures(sample).sentences))
    silent = [[[] for _ in procedure.steps] for procedure in sample]
    table = stages.summary(sample, {"perfect": (perfect.predictions, six(score)), "silent": (silent, six(score))})
    assert table.loc["perfect", ["original F1", "entity P", "entity R", "entity F1 (merged)"]].tolist() == [100] * 4
    assert table.loc["silent", "outputs a step"] == table.loc["silent", "entity R"] == 0
    assert table.loc["perfect", "distinct"] <= table.loc["perfect", "outputs a step"]


def test_the_second_stage_is_decoded_in_several_ways_on_the_same_steps_and_entities(sample, clusterer):
    second = load_seq2seq("tiny")
    how = Decoding(1, max_new_tokens=8, batch_size=8)
    decoder = EntityStepDecoder(second, sample, gold_first(sample), number=3)
    whole = TwoStageDecoder(gold_first, second, second_decoding=how)
    file = scoring.from_predictions(sample, whole.predict(sample))
    found = decoder(how)
    assert found.predictions.sentences == decoder.of(file).sentences
    assert len(found.predictions.sentences) == 3
    assert decoder(how) is found
    references = scoring.references("openpi-c", "test", "sample")
    frame = compare(decoder, {"greedy": how}, references, "sample/test", clusterer)
    assert frame.way.tolist() == ["greedy"]


def test_a_step_is_shown_where_both_stages_speak(sample, perfect):
    assert stages.shown_step(perfect, sample) == (0, 1)
    silent = Stages(TwoStageDecoder(lambda some: [[[] for _ in p.steps] for p in some], lambda q: []), [])
    silent = Stages(silent.decoder, silent.decoder.predict(sample))
    assert stages.shown_step(silent, sample) == (0, 1)
    item = stages.item_of(sample[0], 1)
    assert item.current == len(item.steps) == 2
    slots = stages.slots_before(perfect, sample, 0, 1)
    assert set(slots) == {f"{c.attribute} of {c.entity}" for c in sample[0].steps[0].changes}
    figures = [
        pictures.method(item, slots, perfect.first[0][1], perfect.decoder.by_entity[0][1]),
        pictures.two_stages(item, perfect.first[0][1], perfect.predictions[0][1][:1]),
        pictures.grounded(item, {"a": [("size of pot was small before and large afterwards", True)], "b": []}),
    ]
    said = [[text.get_text() for text in figure.axes[0].texts] for figure in figures]
    assert any("what happens to" in text for text in said[0])
    assert "nothing" in said[2]
    red = [text for text in figures[1].axes[0].texts if text.get_color() == pictures.WRONG]
    assert len(red) >= len(perfect.first[0][1]) - 1


def test_a_run_without_predictions_says_how_to_make_them(sample):
    with pytest.raises(FileNotFoundError, match="make reproduce PROFILE=laptop"):
        stages.changes_of("outputs/laptop/03_baselines/none", sample)


def test_one_run_fills_several_rows(tmp_path, monkeypatch, perfect):
    from lib.results import Run

    monkeypatch.setattr("lib.paths.OUTPUTS", tmp_path)
    records = {"BART + ECond": {"original_exact": {"f1": 0.5}}, "majority template": {}}
    paired = {"BART + ECond": pd.DataFrame({"difference": [0.1]}, index=pd.Index(["original_exact"], name="metric"))}
    studied = {"BART + EMem + ECond": {"strategies": [{"way": "beam 4", "cluster_bleu_f1": 0.2}]}}
    both = {"BART + ECond": perfect, "BART + EMem + ECond": perfect}
    records["BART + EMem + ECond"] = records["BART + ECond"]
    rows = stages.row_records(both, records, paired, studied)
    rate = {"procedures": "all", "measure": "flagged", "model": "a", "share": 0.5, "low": 0.4, "high": None}
    run = Run("05_econd", {"profile": "smoke", "run": "econd", "model": "tiny"})
    run.save_metrics({}, row="BART + ECond", dataset="openpi", rows=rows, rates=[rate], parameters_of_model=3e5,
                     training={"updates": 5})  # fmt: skip
    run.finish()
    found = trained_rows("smoke", ["05_econd"], "openpi")
    assert list(found) == list(both)
    assert strategy_cells(found) == {("Ours (EMem + ECond)", "beam 4"): pytest.approx(20)}
    assert model_names(found)["Ours (EMem + ECond)"] == "random BART, 0M, 5 updates"
    steps = [sentences for by_step in perfect.predictions for sentences in by_step]
    assert outputs_cells(found) == {("BART + ECond", "outputs"): sum(map(len, steps)) / len(steps)}
    rates = rates_frame("smoke")
    assert rates.loc[0, "share (%)"] == 50
    assert rates.loc[0, "run"] == "econd"
    assert rates_frame("paper").empty
