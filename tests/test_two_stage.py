"""Entity-conditioned prediction in two stages."""

import json

import pytest

from lib.data import Procedure, ScoredFile, StateChange, Step, load
from lib.data.examples import entity_examples, step_prompt
from lib.data.scoring import from_procedures, to_jsonl
from lib.decoding import TwoStageDecoder, predict
from lib.encoding import encode
from lib.entities import entities_of, entity_scores, normalised
from lib.generation import Decoding, generate
from lib.metrics import openpi_f1
from lib.models import load_seq2seq
from lib.text import NO_CHANGE, split_answer, to_answer, to_sentence
from lib.training import Settings, fit

HOW = Decoding(beams=2, max_new_tokens=60, max_input=128, batch_size=2)


def gold(procedures):
    """Return the gold sentences: a perfect first stage."""
    return [[list(step.sentences) for step in procedure.steps] for procedure in procedures]


def oracle(procedures, name=str):
    """Return a perfect second stage; `name` says which entities are the same to it."""

    def answers(questions):
        return [
            to_answer([c for c in procedures[q.procedure].steps[q.step].changes if name(c.entity) == name(q.entity)])
            for q in questions
        ]

    return answers


@pytest.fixture(scope="module")
def sample():
    return load("openpi-c", "test", "sample")


@pytest.fixture
def oil():
    changes = (
        StateChange("oil", "temperature", "cool", "hot"),
        StateChange("pan", "state", "empty", "full"),
        StateChange("oil", "location", "in bottle", "in pan"),
    )
    steps = (Step(1, "Pour oil.", changes), Step(2, "Wait.", (StateChange("pan", "temperature", "cool", "hot"),)))
    return [Procedure("x/Fry", "Fry", steps)]


def test_a_training_example_is_a_step_and_one_of_its_entities(oil):
    first, second, third = entity_examples(oil)
    assert first.prompt == "Fry. Pour oil. Now, what happens to oil?"
    assert first.target == ", ".join(to_sentence(oil[0].steps[0].changes[at]) for at in (0, 2))
    assert second.target == to_sentence(oil[0].steps[0].changes[1])
    assert third.prompt == "Fry. Pour oil. Wait. Now, what happens to pan?"
    assert third.id == "x/Fry||2"
    assert first.prompt == step_prompt(oil[0], 0, entity="oil")
    more = entity_examples(oil, unchanged=3)
    assert len(more) == 4  # step 1 changes all there is; step 2 leaves the oil
    assert (more[3].prompt, more[3].target) == ("Fry. Pour oil. Wait. Now, what happens to oil?", NO_CHANGE)
    assert entity_examples(oil, goal=False)[0].prompt == "Pour oil. Now, what happens to oil?"


def test_entities_are_exact_or_merged():
    sentences = [f"size of {name} was a before and b afterwards" for name in ("the oil", "oil", "Oil", "egg", "the")]
    assert entities_of([*sentences, "no sentence"]) == ["Oil", "egg", "oil", "the", "the oil"]
    assert entities_of(sentences, "safe") == ["Oil", "egg", "the"]
    assert normalised("the") == "the"
    assert normalised("Your  own Hands") == "own hands"
    assert entities_of([]) == []


def test_entity_scores_are_means_over_steps():
    scores = entity_scores([["oil", "egg"], [], ["pan"]], [["oil"], ["pan"], ["pan", "the Oil"]])
    assert scores["precision"] == pytest.approx((1 / 2 + 1 + 1) / 3)
    assert scores["recall"] == pytest.approx((1 + 0 + 1 / 2) / 3)
    assert entity_scores([["the oil"]], [["Oil"]])["f1"] == 0
    assert entity_scores([["the oil"]], [["Oil"]], "safe")["f1"] == 1
    with pytest.raises(ValueError, match="2 predicted and 1 gold"):
        entity_scores([[], []], [[]])


@pytest.mark.parametrize("preset", ["released", "safe"])
def test_two_perfect_stages_lose_nothing_that_survives_the_sentences(sample, preset):
    decoder = TwoStageDecoder(gold, oracle(sample), preset)
    merged = decoder.predict(sample)
    expected = [
        [sorted({s for s in step.sentences if "," not in s}) for step in procedure.steps] for procedure in sample
    ]
    if preset == "safe":
        expected = [[sorted(set(step.sentences)) for step in procedure.steps] for procedure in sample]
    found = [[sorted(set(sentences)) for sentences in by_step] for by_step in merged]
    assert found == expected
    flat = [s for by_step in merged for s in by_step]
    assert openpi_f1(flat, [s for by_step in expected for s in by_step], "exact").f1 == 1
    assert decoder.report.steps == sum(len(procedure.steps) for procedure in sample)
    assert decoder.report.questions == sum(len(e) for by_step in decoder.by_entity for e in by_step)


def test_an_empty_first_stage_gives_an_empty_result(sample):
    model, tokenizer = load_seq2seq("tiny")
    decoder = TwoStageDecoder(lambda some: [[[] for _ in p.steps] for p in some], (model, tokenizer))
    assert decoder.predict(sample) == [[[] for _ in procedure.steps] for procedure in sample]
    assert decoder.report.questions == decoder.report.outputs == 0
    assert decoder.report.silent_steps == decoder.report.steps
    assert TwoStageDecoder(gold, (model, tokenizer)).predict([]) == []


def test_quiet_answers_are_dropped_and_the_others_joined_in_the_entities_order(oil):
    answers = {"oil": NO_CHANGE, "pan": to_answer(oil[0].steps[1].changes)}
    decoder = TwoStageDecoder(gold, lambda questions: [answers[q.entity] for q in questions])
    (by_step,) = decoder.predict(oil)
    pan = list(oil[0].steps[1].sentences)
    assert by_step == [pan, pan]
    assert decoder.by_entity[0][0] == {"oil": [], "pan": pan}
    assert decoder.report.quiet_answers == 1
    doubled = TwoStageDecoder(gold, lambda questions: [answers["pan"]] * len(questions))
    assert doubled.predict(oil)[0][0] == pan * 2
    assert TwoStageDecoder(gold, lambda questions: [answers["pan"]] * len(questions), "safe").predict(oil)[0][0] == pan


def test_odd_entities_are_asked_about_as_they_are():
    names = ["salt, pepper", "crème brûlée", "who was there", "x" * 200, *(f"thing {n}" for n in range(500))]
    changes = tuple(StateChange(name, "size", "small", "large") for name in names)
    procedure = Procedure("x/Odd", "Odd", (Step(1, "Do it.", changes),))
    asked = []

    def second(questions):
        asked.extend(questions)
        return [to_answer([c for c in changes if c.entity == q.entity]) for q in questions]

    merged = TwoStageDecoder(gold, second, "safe").predict([procedure])
    # `was` cuts the entity's name short: its question is another one, and nothing answers it.
    assert {q.entity for q in asked} == {*names, "who"} - {"who was there"}
    assert len(merged[0][0]) == len(names) - 1
    assert any(q.prompt.endswith("what happens to salt, pepper?") for q in asked)


def test_predictions_of_a_file_are_joined_by_step(sample, tmp_path):
    path = tmp_path / "predictions.jsonl"
    path.write_text(to_jsonl(from_procedures(sample)))
    from_file = TwoStageDecoder(path, oracle(sample)).predict(sample)
    assert from_file == TwoStageDecoder(from_procedures(sample), oracle(sample)).predict(sample)
    assert from_file == TwoStageDecoder(gold, oracle(sample)).predict(sample)
    with pytest.raises(ValueError, match="ids do not agree"):
        TwoStageDecoder(ScoredFile({"x||1": []}), oracle(sample)).predict(sample)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return a tiny second stage that has learned the answers about two procedures' entities."""
    model, tokenizer = load_seq2seq("tiny", dropout=0.0)
    procedures = load("openpi-c", "test", "sample")[:1]
    rows = encode(tokenizer, entity_examples(procedures), 128, 60)
    settings = Settings(
        learning_rate=3e-3, updates=150, evaluate_every=150, batch_size=8, precision="fp32", device="cpu"
    )
    fit(model, tokenizer, rows, rows, tmp_path_factory.mktemp("fit"), settings)
    return model, tokenizer


def test_batches_give_what_one_prompt_at_a_time_gives(trained, sample):
    decoder = TwoStageDecoder(gold, trained, second_decoding=HOW)
    decoder.predict(sample[:2])
    for question in decoder.questions(sample[:2], decoder.first_predictions)[::5]:
        (alone,) = generate(*trained, [question.prompt], HOW)
        found = decoder.by_entity[question.procedure][question.step][question.entity]
        assert found == split_answer(alone.text)
    assert decoder.report.outputs > 5


def test_the_first_stage_may_be_a_model(trained, sample):
    decoder = TwoStageDecoder(trained, trained, first_decoding=HOW, second_decoding=HOW)
    decoder.predict(sample[:1])
    assert decoder.first_predictions == predict(*trained, sample[:1], HOW)


def test_an_interrupted_decoding_goes_on_and_decodes_nothing_twice(trained, sample, tmp_path, monkeypatch):
    how = {"second_decoding": HOW, "resume": tmp_path / "folder" / "second.jsonl"}
    expected = TwoStageDecoder(gold, trained, second_decoding=HOW).predict(sample)
    calls = []

    def counted(model, tokenizer, prompts, *more, **named):
        calls.append(len(prompts))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return generate(model, tokenizer, prompts, *more, **named)

    monkeypatch.setattr("lib.decoding.two_stage.generate", counted)
    with pytest.raises(KeyboardInterrupt):
        TwoStageDecoder(gold, trained, **how).predict(sample)
    with how["resume"].open("a") as file:
        file.write('{"digest": "half a li')  # as a kill would leave it
    decoder = TwoStageDecoder(gold, trained, **how)
    assert decoder.predict(sample) == expected
    assert sum(calls) - calls[2] == decoder.report.questions
    calls[:] = [0, 0, 0]
    assert TwoStageDecoder(gold, trained, **how).predict(sample) == expected
    assert calls == [0, 0, 0]
    assert all(json.loads(line) for line in how["resume"].read_text().splitlines())
    TwoStageDecoder(gold, trained, **how | {"second_decoding": Decoding(1, max_new_tokens=30)}).predict(sample[:1])
    assert len(calls) > 3  # other settings are decoded anew


@pytest.mark.real_data
@pytest.mark.parametrize(("dataset", "released", "safe"), [("openpi-c", 99.79, 100), ("openpi", 99.72, 99.92)])
def test_two_perfect_stages_on_the_public_data_lose_what_was_measured(dataset, released, safe):
    # Lost: changes with a comma in them, and entities with ` of ` or ` was ` in them, which are parsed as others.
    procedures = load(dataset, "test")
    reference = [sentences for by_step in gold(procedures) for sentences in by_step]
    for preset, name, expected in (("released", str, released), ("safe", normalised, safe)):
        merged = TwoStageDecoder(gold, oracle(procedures, name), preset).predict(procedures)
        found = openpi_f1([s for by_step in merged for s in by_step], reference, "exact").f1
        assert 100 * found == pytest.approx(expected, abs=0.05)
