from dataclasses import replace

import pytest
import torch

from lib import decoding
from lib.baselines import majority_template, noun_finder
from lib.data import Procedure, StateChange, Step, load, scoring
from lib.data.examples import step_examples
from lib.decoding import predict, target_bound
from lib.encoding import encode
from lib.evaluation import choose_decoding, choose_templates, rouge_f1
from lib.generation import Decoding, generate, generation_config, to_text
from lib.models import load_seq2seq
from lib.training import Settings, fit


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return a tiny model that has learned two steps by heart, its tokenizer and these steps."""
    change = StateChange("kettle", "temperature", "lukewarm", "piping hot")
    steps = (Step(1, "Put it on.", (change,)), Step(2, "Wait a while until nothing at all happens.", ()))
    procedures = [Procedure("x/Boil", "Boil", steps)]
    model, tokenizer = load_seq2seq("tiny", dropout=0.0)
    rows = encode(tokenizer, step_examples(procedures), 64, 64)
    settings = Settings(
        learning_rate=3e-3, updates=150, evaluate_every=150, batch_size=2, precision="fp32", device="cpu"
    )
    fit(model, tokenizer, rows, rows, tmp_path_factory.mktemp("fit"), settings)
    return model, tokenizer, procedures


def test_what_was_learned_by_heart_is_generated_also_after_saving(trained, tmp_path):
    model, tokenizer, procedures = trained
    expected = [[["temperature of kettle was lukewarm before and piping hot afterwards"], []]]
    for beams in (1, 4):
        predictions, report = predict(
            model, tokenizer, procedures, Decoding(beams, max_new_tokens=60), return_report=True
        )
        assert predictions == expected
        assert (report.outputs_truncated, report.no_change, report.distinct) == (0, 1, 1)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    again = load_seq2seq(str(tmp_path))
    assert predict(*again, procedures, Decoding(max_new_tokens=60)) == expected


@pytest.mark.parametrize("beams", [1, 4])
def test_the_output_depends_neither_on_the_batch_size_nor_on_the_order(trained, beams):
    model, tokenizer, procedures = trained
    prompts = [e.prompt for e in (*step_examples(procedures), *step_examples(load("openpi-c", "dev", "sample"))[:7])]
    how = Decoding(beams, max_new_tokens=25)
    whole = generate(model, tokenizer, prompts, replace(how, batch_size=9))
    assert len({output.text for output in whole}) > 1
    for size in (1, 4):
        assert generate(model, tokenizer, prompts, replace(how, batch_size=size)) == whole
    assert generate(model, tokenizer, prompts[::-1], how)[::-1] == whole


def test_padding_and_truncation_are_seen_per_row(trained):
    model, tokenizer, _ = trained
    prompts = ["Boil. Put it on. Now, what happens?", "Boil. " + "Put it on. " * 30 + "Now, what happens?"]
    outputs = generate(model, tokenizer, prompts, Decoding(max_input=40, max_new_tokens=3))
    assert [output.input_truncated for output in outputs] == [False, True]
    assert [output.truncated for output in outputs] == [True, True]
    assert [output.tokens for output in outputs] == [3, 3]


def test_outputs_that_hit_the_bound_are_counted_and_no_end_is_forced():
    model, tokenizer = load_seq2seq("tiny")
    procedures = load("openpi-c", "dev", "sample")[:1]
    _, report = predict(model, tokenizer, procedures, Decoding(max_new_tokens=12), return_report=True)
    assert report.outputs_truncated == report.steps == len(procedures[0].steps)
    assert report.tokens == 12 * report.steps


def test_sampling_depends_on_its_seed_and_refuses_beams():
    model, tokenizer = load_seq2seq("tiny")
    prompts = ["Boil. Put it on. Now, what happens?"] * 2
    how = Decoding(1, top_p=0.9, max_new_tokens=20)
    texts = [[o.text for o in generate(model, tokenizer, prompts, how, seed=seed)] for seed in (0, 0, 1)]
    assert texts[0] == texts[1] != texts[2]
    with pytest.raises(ValueError, match="beams=4 with sampling"):
        generation_config(model, Decoding(4, top_k=5))


def test_forbidden_repeats_do_not_repeat_and_the_setting_is_chosen_on_dev(trained, monkeypatch):
    model, tokenizer, procedures = trained
    looping, _ = load_seq2seq("tiny")
    looping.final_logits_bias[0, [looping.config.eos_token_id, looping.config.pad_token_id]] = -1e4  # never ends
    for size, repeats in ((0, True), (3, False)):
        config = generation_config(looping, Decoding(4, no_repeat_ngram_size=size, max_new_tokens=50))
        ids = looping.generate(torch.tensor([[0, 50, 2]]), generation_config=config)[0].tolist()[1:]
        grams = [tuple(ids[i : i + 3]) for i in range(len(ids) - 2)]
        assert len(grams) == 48
        assert (len(set(grams)) < len(grams)) is repeats
    chosen, table = choose_decoding(model, tokenizer, procedures, Decoding(max_new_tokens=60), "1,0")
    assert chosen.no_repeat_ngram_size == 0
    assert table.no_repeat_ngram_size.tolist() == [1, 0]
    assert table.dev_rouge_l_f1.tolist()[1] == 1.0
    monkeypatch.setattr("lib.evaluation.predict", None)
    assert choose_decoding(model, tokenizer, procedures, Decoding(), "6")[0].no_repeat_ngram_size == 6


def test_one_source_after_another_decodes_as_alone(trained):
    model, tokenizer, _ = trained
    first, second = "Boil. Put it on. Now, what happens?", "Boil. Put it on. Wait. Now, what happens?"
    how = Decoding(max_new_tokens=20, batch_size=1)
    both = generate(model, tokenizer, [first, second], how)
    assert both == [generate(model, tokenizer, [prompt], how)[0] for prompt in (first, second)]


def test_the_text_of_tokens_keeps_what_was_written():
    for name, texts in {
        "tiny": ["do n't", "3 . 5", "x , y", "non-stick 3.5 café"],
        "warm:minilm": ["don't", "non-stick pan", "3.5 cups", "wet/pasty", "x, y"],
    }.items():
        _, tokenizer = load_seq2seq(name)
        for text in texts:
            assert to_text(tokenizer, tokenizer(text, add_special_tokens=False).input_ids) == text


def test_bound_is_a_share_of_the_training_targets():
    rows = [{"labels": [0] * length} for length in range(1, 101)]
    assert target_bound(rows) == 100
    assert target_bound(rows, 0.5) == 51


def test_majority_template_counts_training_changes_and_fills_in_nouns():
    train = [Procedure("a/A", "A", (Step(1, "x", (StateChange("a", "location", "here", "there"),) * 2),))]
    test = [Procedure("b/B", "B", (Step(1, "Stir the soup.", ()),))]
    predictions = majority_template(train, test, lambda text: ["soup"])
    assert predictions == [[["location of soup was here before and there afterwards"]]]
    assert noun_finder()("Stir the soup in the pot; stir the soup.") == ["soup", "pot"]


def test_number_of_templates_is_chosen_on_dev_and_predictions_round_trip_as_a_file(tmp_path):
    splits = {split: load("openpi-c", split, "sample") for split in ("train", "dev", "test")}
    predictions, best = choose_templates(*splits.values(), noun_finder(), largest=2)
    other = [
        rouge_f1(splits["dev"], majority_template(splits["train"], splits["dev"], noun_finder(), n)) for n in (1, 2)
    ]
    assert best == 1 + other.index(max(other))
    file = scoring.from_predictions(splits["test"], predictions)
    (tmp_path / "p.jsonl").write_text(scoring.to_jsonl(file), encoding="utf-8")
    assert scoring.read_scored(tmp_path / "p.jsonl").sentences == file.sentences
    assert scoring.align(file, scoring.references("openpi-c", "test", "sample")) == list(file.sentences)


def test_records_hold_outputs_per_step():
    model, tokenizer = load_seq2seq("tiny")
    _, report = predict(
        model, tokenizer, load("openpi-c", "dev", "sample")[:1], Decoding(max_new_tokens=5), return_report=True
    )
    record = decoding.as_record(report)
    assert record["outputs_per_step"] == report.sentences / report.steps
