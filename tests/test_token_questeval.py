"""The metric: masks, fillings, scores, what is odd, and the store."""

import json
import math
import multiprocessing

import pytest
import torch

from lib.models import load_seq2seq
from lib.token_questeval import (
    MASK,
    SEPARATOR,
    Filler,
    Masker,
    TokenQuestEval,
    normalize_answer,
    prepare,
    squad_exact,
    squad_f1,
)
from lib.token_questeval.logs import ANSWER_TYPE, QUESTIONS, LogStore, masked_of, new_log, problem

CAT, LEAPED = "It is a cat. It jumps away.", "To catch the bird, the cat leaped."
OAK, ESCAPED = "The bird flies, landing on the top of the oak tree.", "The bird escaped to the top of the tree."
ODD = {
    "emoji with skin tone": "Stir 👩🏽‍🍳 well.",
    "right to left": "שלום עולם, مرحبا.",
    "only punctuation": ", , .",
    "one token": "stir",
    "5,000 tokens": "salt water " * 2500,
    "newlines": "Stir.\n\nWait\tlong.",
    "literal special tokens": "Write <mask> and <sep> here.",
}


@pytest.fixture(scope="module", params=["tiny-t5", "tiny"])
def loaded(request):
    model, tokenizer = load_seq2seq(request.param, dropout=0.0)
    prepare(model, tokenizer)
    return model, tokenizer


@pytest.fixture(scope="module")
def bart():
    model, tokenizer = load_seq2seq("tiny", dropout=0.0)
    prepare(model, tokenizer)
    return model, tokenizer


# Masks


def test_the_released_example_gives_its_nine_segments_and_answers():
    """Source: the released system's documentation, window 4."""
    masked = Masker(window=4).mask([CAT])[0]
    assert [item.segment for item in masked] == [
        " <mask> is a cat .",
        "It <mask> a cat . It",
        "It is <mask> cat . It jumps",
        "It is a <mask> . It jumps away",
        "It is a cat <mask> It jumps away .",
        "is a cat . <mask> jumps away .",
        "a cat . It <mask> away .",
        "cat . It jumps <mask> .",
        ". It jumps away <mask> ",
    ]
    assert [(item.text, item.pos_tag) for item in masked] == [
        ("It", "PRON"), ("is", "AUX"), ("a", "DET"), ("cat", "NOUN"), (".", "PUNCT"), ("It", "PRON"),
        ("jumps", "VERB"), ("away", "ADV"), (".", "PUNCT"),
    ]  # fmt: skip


def test_a_window_of_one_has_exactly_these_segments_in_both_presets():
    released, safe = (
        Masker(preset, 1, tokenizer="whitespace").mask(["Do n't stop"])[0] for preset in ("released", "safe")
    )
    assert [item.segment for item in released] == [" <mask> n't", "Do <mask> stop", "n't <mask> "]
    assert [item.segment for item in safe] == ["<mask> n't", "Do <mask> stop", "n't <mask>"]


@pytest.mark.parametrize(
    "text", ["a  b\nc", "Wave 👋🏽 at Dr. Bob's 1/2 cup.", "U.S.-based 350F. salt\u200bwater", *ODD.values()]
)
def test_safe_masks_every_token_once_and_the_token_at_its_place_gives_the_text_back(text):
    masker = Masker("safe", window=10_000, limit_sent=0)
    masked = masker.mask([text])[0]
    tokens = [token for token in masker.spacy(text) if not token.is_space]
    assert [(item.text, item.start) for item in masked] == [(token.text, token.idx) for token in tokens]
    if MASK not in text:
        stripped = text.strip()
        assert all(item.segment.replace(MASK, item.text) == stripped for item in masked)
    assert len(Masker("safe").mask(["a  b\nc"])[0]) == 3


def test_released_masks_white_space_too():
    assert [item.text for item in Masker().mask(["a  b\nc"])[0]] == ["a", " ", "b", "\n", "c"]


def test_only_the_first_sentences_are_masked():
    text = "One is here. Two is here. Three is here."
    assert [m.text for m in Masker(limit_sent=2).mask([text])[0]].count("here") == 2
    assert [m.text for m in Masker("safe", limit_sent=1).mask([text])[0]] == ["One", "is", "here", "."]
    assert [m.text for m in Masker(limit_sent=0).mask([text])[0]].count("here") == 3
    assert [m.text for m in Masker(limit_sent=1, tokenizer="whitespace").mask([text])[0]] == ["One", "is", "here."]


@pytest.mark.parametrize("wrong", [{"preset": "strict"}, {"tokenizer": "nltk"}, {"window": 0}, {"limit_sent": -1}])
def test_unknown_settings_are_refused(wrong):
    with pytest.raises(ValueError, match=str(next(iter(wrong.values())))):
        Masker(**wrong)


# Scores of a word


def test_squad_f1_pays_for_punctuation_and_articles():
    pairs = [("the", "a"), (",", ""), (".", "the"), ("3.5", "35"), ("n't", "not")]
    assert [squad_f1(predicted, truth) for truth, predicted in pairs] == [1, 1, 1, 1, 0]
    assert squad_f1("red cat", "cat") == pytest.approx(2 / 3)
    assert squad_exact("The Cat!", "cat") == 1
    assert squad_exact("red cat", "cat") == 0
    assert normalize_answer(" An  U.S. cat ") == "us cat"


# Filling


def test_a_tokenizer_without_the_special_tokens_is_refused():
    with pytest.raises(ValueError, match=r"<mask> is \d pieces"):
        Filler(*load_seq2seq("tiny"))


def test_the_special_tokens_are_one_piece_each_and_keep_their_neighbours(loaded):
    _, tokenizer = loaded
    pieces = tokenizer.tokenize("salt <mask> water <sep> b")
    assert pieces.count(MASK) == pieces.count(SEPARATOR) == 1
    assert tokenizer.tokenize("a<mask>b").count(MASK) == 1


def test_new_embeddings_start_from_the_tokenizers_own_mask_and_separator():
    model, tokenizer = load_seq2seq("warm:minilm", decoder_layers=1)
    prepare(model, tokenizer)
    weight = model.get_input_embeddings().weight
    for token, own in ((MASK, tokenizer.mask_token_id), (SEPARATOR, tokenizer.sep_token_id)):
        assert tokenizer.convert_tokens_to_ids(token) != own
        assert torch.equal(weight[tokenizer.convert_tokens_to_ids(token)], weight[own])


def test_prepare_is_the_same_twice_and_adds_nothing_a_second_time():
    first, second = load_seq2seq("tiny-t5"), load_seq2seq("tiny-t5")
    for pair in (first, second):
        prepare(*pair)
    assert Filler(*first).digest() == Filler(*second).digest()
    prepare(*second, seed=0)  # again: nothing is added
    assert Filler(*first).digest() == Filler(*second).digest()


def test_batch_size_and_batch_mates_do_not_change_a_word_or_a_score(loaded):
    rows = [(f"salt {MASK} " + "of the sea " * n, "water and " * (7 - n), ["water", "salt of"]) for n in range(7)]
    together = Filler(*loaded, batch_size=7).fill(rows)
    for size in (1, 3):
        for one, other in zip(Filler(*loaded, batch_size=size).fill(rows), together, strict=True):
            assert one.answer == other.answer
            assert one.answerability == pytest.approx(other.answerability, abs=1e-6)
            assert one.scores == pytest.approx(other.scores, abs=1e-5)


def test_scores_are_those_of_the_whole_model_on_one_input(loaded):
    model, tokenizer = loaded
    segment, other, truth = f"Pour {MASK} in .", "Pour the water in the pot.", "water"
    filled = Filler(model, tokenizer).fill([(segment, other, [truth])])[0]
    inputs = tokenizer(f"{segment} {SEPARATOR} {other}", return_tensors="pt")
    labels = tokenizer(truth, add_special_tokens=False, return_tensors="pt").input_ids
    labels = torch.cat([labels, torch.tensor([[tokenizer.eos_token_id]])], dim=1)
    with torch.inference_mode():
        logits = model(**{k: inputs[k] for k in ("input_ids", "attention_mask")}, labels=labels).logits.log_softmax(-1)
        said = model.generate(
            inputs.input_ids, attention_mask=inputs.attention_mask, max_new_tokens=20, do_sample=False
        )
    assert filled.scores[truth] == pytest.approx(float(logits.gather(-1, labels[..., None]).mean()), abs=1e-5)
    unanswerable = tokenizer.convert_tokens_to_ids("<unanswerable>")
    assert filled.answerability == pytest.approx(1 - float(logits[0, 0, unanswerable].exp()), abs=1e-6)
    assert filled.answer.split() == tokenizer.decode(said[0], skip_special_tokens=True).split()


def test_equal_inputs_are_filled_once_with_all_their_truths(bart, monkeypatch):
    filler = Filler(*bart)
    batches = []
    run = filler._fill_batch
    monkeypatch.setattr(
        filler, "_fill_batch", lambda encoded, truths: batches.append(len(encoded)) or run(encoded, truths)
    )
    same = [(f"a {MASK}", "b", ["x"]), (f"a {MASK}", "b", ["y"]), (f"a {MASK}", "c", ["x"])]
    filled = filler.fill(same)
    assert batches == [2]
    assert set(filled[0].scores) == {"x", "y"}
    assert filler.fill([]) == []


def test_long_inputs_are_cut_from_the_right_and_said_so(bart):
    filled = Filler(*bart).fill([(f"a {MASK}", "salt " * 3000, ["x"]), (f"a {MASK}", "b", ["x"])])
    assert [item.input_cut for item in filled] == [True, False]


def test_a_model_is_known_by_its_weights_not_by_its_folder(bart, tmp_path):
    model, tokenizer = bart
    found = []
    for name in ("t5x", "m"):
        model.save_pretrained(tmp_path / name)
        tokenizer.save_pretrained(tmp_path / name)
        metric = TokenQuestEval(str(tmp_path / name), use_cache=False)
        found.append((metric.filler.digest(), metric.corpus_questeval([LEAPED], [CAT])["corpus_score"]))
    assert found[0] == found[1]
    assert found[0][0] == Filler(model, tokenizer).digest()


# The metric


@pytest.fixture
def metric(bart, tmp_path):
    return TokenQuestEval(bart, log_dir=tmp_path / "logs")


def test_the_score_is_the_mean_over_positions_scores_and_directions(metric):
    said = metric.corpus_questeval(hypothesis=[LEAPED, ESCAPED], sources=[CAT, OAK])
    positions = metric.positions([LEAPED, ESCAPED], [CAT, OAK])
    by_hand = positions.groupby(["pair", "direction"])[["f1", "bartscore"]].mean().mean(axis=1).groupby("pair").mean()
    assert said["ex_level_scores"] == pytest.approx(by_hand.tolist())
    assert said["corpus_score"] == pytest.approx(by_hand.mean())
    assert "preset:released" in said["signature"]
    counted = positions[positions.counted].groupby(["pair", "direction"])[["f1", "bartscore"]].mean().mean(axis=1)
    assert metric.report["score_without_nothing"] == pytest.approx(counted.groupby("pair").mean().mean())
    assert metric.report["normalise_to_nothing"] == pytest.approx(1 - positions.counted.mean())


def test_directions_and_scores_can_be_chosen(bart):
    positions = TokenQuestEval(bart, use_cache=False).positions([LEAPED], [CAT])
    for direction in ("mask_src", "mask_hyp"):
        for score in ("f1", "bartscore"):
            alone = TokenQuestEval(bart, doc_types=(direction,), list_scores=(score,), use_cache=False)
            expected = positions[positions.direction == direction][score].mean()
            assert alone.corpus_questeval([LEAPED], [CAT])["corpus_score"] == pytest.approx(expected)
    everything = TokenQuestEval(bart, list_scores=("exact_match", "answerability"), use_cache=False)
    assert 0 < everything.corpus_questeval([LEAPED], [CAT])["corpus_score"] <= 1


def test_of_several_references_the_best_counts(metric):
    alone = [metric.corpus_questeval([LEAPED], [source])["corpus_score"] for source in (CAT, OAK)]
    assert metric.corpus_questeval([LEAPED], [[CAT, OAK]])["corpus_score"] == pytest.approx(max(alone))


def test_empty_texts_score_nothing_and_are_counted(metric):
    said = metric.corpus_questeval(["", "a", " \n", LEAPED], [CAT, "", "", CAT])
    assert said["ex_level_scores"][:3] == [0, 0, 0]
    assert said["corpus_score"] == pytest.approx(said["ex_level_scores"][3] / 4)
    assert metric.report["empty_pairs"] == 3


@pytest.mark.parametrize("preset", ["released", "safe"])
@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
def test_odd_texts_have_a_defined_score(bart, preset, text):
    metric = TokenQuestEval(bart, preset=preset, use_cache=False, limit_sent=5)
    if len(text) > 10_000:  # all 5,000 tokens are masked once; the model is asked about the first of them only
        assert len(metric.masker.mask([text])[0]) == 5000
        text = text[:300]
    scores = [metric.corpus_questeval([a], [b])["corpus_score"] for a, b in ((text, CAT), (CAT, text))]
    for score in scores:
        assert 0 <= score <= 1
    assert metric.report["texts_with_special_tokens"] == (MASK in text)


def test_literal_special_tokens_are_read_as_text_in_safe(bart):
    text = "Write <mask> and <sep> here."
    for preset, marks in (("released", 2), ("safe", 1)):
        metric = TokenQuestEval(bart, preset=preset, use_cache=False)
        segment = metric.masker.mask([text])[0][0].segment
        pieces = metric.filler.tokenizer.tokenize(f"{segment} {SEPARATOR} {metric._other(text)}")
        assert pieces.count(MASK) == pieces.count(SEPARATOR) == marks


def test_only_punctuation_scores_in_released_and_is_undefined_in_safe(bart):
    released, safe = (TokenQuestEval(bart, preset=preset, use_cache=False) for preset in ("released", "safe"))
    assert released.corpus_questeval([", , ."], ["; !"])["corpus_score"] >= 0
    assert math.isnan(released.report["score_without_nothing"])
    assert released.report["undefined_without_nothing"] == 1
    said = safe.corpus_questeval([", , .", LEAPED], ["; !", CAT])
    assert math.isnan(said["ex_level_scores"][0])
    assert said["corpus_score"] == said["ex_level_scores"][1]


def test_the_same_text_on_both_sides_is_scored_in_both_directions(metric):
    metric.corpus_questeval([CAT], [CAT])
    positions = metric.positions([CAT], [CAT])
    by_direction = [rows[["f1", "bartscore"]].to_numpy() for _, rows in positions.groupby("direction")]
    assert len(by_direction) == 2
    assert by_direction[0] == pytest.approx(by_direction[1])
    assert len(list(metric.store.folder.glob("*/*.json"))) == 2


def test_wrong_input_is_named(metric, bart):
    with pytest.raises(ValueError, match="2 hypotheses, 1 sources"):
        metric.corpus_questeval([CAT, CAT], [CAT])
    with pytest.raises(ValueError, match="nothing to score"):
        metric.corpus_questeval([], [])
    with pytest.raises(TypeError, match="single string"):
        metric.corpus_questeval(CAT, LEAPED)
    with pytest.raises(ValueError, match="pair 1"):
        metric.corpus_questeval([CAT, None], [CAT, CAT])
    with pytest.raises(ValueError, match="pair 0"):
        metric.corpus_questeval([CAT], [[]])
    for wrong in ({"list_scores": ("bleu",)}, {"doc_types": "mask_src"}, {"list_scores": ()}, {"preset": "paper"}):
        with pytest.raises(ValueError, match="expected|preset"):
            TokenQuestEval(bart, use_cache=False, **wrong)


def test_a_shared_segment_has_one_bartscore_in_released_and_one_a_truth_in_safe(bart):
    twice = "a x b a y b"
    released, safe = (
        TokenQuestEval(bart, preset=preset, sliding_window_size=1, tokenizer="whitespace", use_cache=False)
        for preset in ("released", "safe")
    )
    rows = [
        m.positions([twice], ["c"]).query("direction == 'mask_hyp'").set_index("position") for m in (released, safe)
    ]
    assert rows[0].bartscore[1] == rows[0].bartscore[4]  # the first truth's, as released
    assert rows[1].bartscore[1] != rows[1].bartscore[4]
    assert rows[0].bartscore[1] == pytest.approx(rows[1].bartscore[1])


# The store


def logs_of(metric, role):
    return sorted((metric.store.folder / role).glob("*.json"))


def test_a_second_call_fills_nothing_and_scores_the_same(metric):
    first = metric.corpus_questeval([LEAPED, ESCAPED], [CAT, OAK])
    assert metric.report["segments_filled"] == metric.report["tokens"]
    second = metric.corpus_questeval([LEAPED, ESCAPED], [CAT, OAK])
    assert second == first
    assert metric.report["segments_filled"] == 0
    assert metric.report["tokens_from_store"] == metric.report["tokens"]


def test_a_log_has_the_released_structure(bart, tmp_path):
    metric = TokenQuestEval(bart, sliding_window_size=4, log_dir=tmp_path)
    metric.corpus_questeval([LEAPED], [CAT])
    log = json.loads(logs_of(metric, "src")[0].read_text())
    assert list(log) == ["type", "text", "self", "asked"]
    assert (log["type"], log["text"]) == ("src", CAT)
    own = log["self"]["TOKEN"]
    assert own["QG_hash=ThomasNLG/t5-qg_squad1-en"]["questions"][0] == " <mask> is a cat ."
    assert own["answers"][0] == {"text": "It", "pos_tag": "PRON"}
    entry = log["asked"][" <mask> catch the bird ,"]["QA_hash=bart"]
    assert {"answer", "answerability", "bartscore", "ground_truth"} <= set(entry)
    assert entry["ground_truth"]["To"]["pos_tag"] == "PART"
    assert entry["ground_truth"]["To"]["f1"] == 0


@pytest.mark.parametrize(
    "changed", [{"sliding_window_size": 3}, {"tokenizer": "whitespace"}, {"preset": "safe"}, {"limit_sent": 1}]
)
def test_a_changed_setting_reads_no_stale_entry(bart, tmp_path, changed):
    TokenQuestEval(bart, log_dir=tmp_path).corpus_questeval([LEAPED], [CAT])
    metric = TokenQuestEval(bart, log_dir=tmp_path, **changed)
    metric.corpus_questeval([LEAPED], [CAT])
    assert metric.report["tokens_from_store"] == 0
    assert metric.report["segments_filled"] > 0


def test_other_weights_read_no_stale_entry(bart, tmp_path):
    TokenQuestEval(bart, log_dir=tmp_path).corpus_questeval([LEAPED], [CAT])
    model, tokenizer = load_seq2seq("tiny", seed=1, dropout=0.0)
    prepare(model, tokenizer)
    metric = TokenQuestEval((model, tokenizer), log_dir=tmp_path)
    metric.corpus_questeval([LEAPED], [CAT])
    assert metric.report["tokens_from_store"] == 0


@pytest.mark.parametrize(
    "content",
    [
        b'{"type": "src", "te',
        b"[]",
        b"\xff\xfe",
        b"",
        b'{"type": "src", "text": "another", "self": {}, "asked": {}}',
        json.dumps({**new_log("src", CAT, ["a"], []), "asked": {}}).encode(),
        json.dumps({**new_log("src", CAT, [], []), "asked": {"a": {"QA_hash=bart": {"answer": 1}}}}).encode(),
    ],
)
def test_a_damaged_log_is_set_aside_and_made_again(metric, content):
    expected = metric.corpus_questeval([LEAPED], [CAT])
    path = logs_of(metric, "src")[0]
    path.write_bytes(content)
    with pytest.warns(UserWarning, match="is damaged") as warned:
        assert metric.corpus_questeval([LEAPED], [CAT]) == expected
    assert len(warned) == 1
    assert metric.report["damaged_logs"] == 1
    assert [p.read_bytes() for p in path.parent.glob("*.damaged-*")] == [content]
    assert problem(json.loads(path.read_text()), "src", CAT) == ""


def test_a_store_that_can_no_longer_be_written_costs_the_log_not_the_score(metric, bart, monkeypatch):
    expected = TokenQuestEval(bart, use_cache=False).corpus_questeval([LEAPED], [CAT])["corpus_score"]

    def full(path):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("lib.token_questeval.logs.atomic", full)
    with pytest.warns(UserWarning, match="Scores are returned"):
        assert metric.corpus_questeval([LEAPED], [CAT])["corpus_score"] == pytest.approx(expected)


def test_a_folder_that_cannot_be_made_is_refused_at_once(bart, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="cannot write"):
        TokenQuestEval(bart, log_dir=tmp_path / "file")


def test_without_a_cache_nothing_is_written(bart, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    TokenQuestEval(bart, use_cache=False, log_dir=tmp_path / "logs").corpus_questeval([LEAPED], [CAT])
    assert list(tmp_path.iterdir()) == []


def test_what_another_process_added_meanwhile_is_kept(tmp_path):
    entry = {"answer": "a", "answerability": None, "bartscore": 0.5}
    truth = {"pos_tag": "", "f1": 0.0, "exact_match": 0.0, "bartscore": 0.5}
    ours, theirs = new_log("hyp", CAT, [], []), new_log("hyp", CAT, [], [])
    ours["asked"] = {"a": {"m": {**entry, "ground_truth": {"x": truth}}}}
    theirs["asked"] = {
        "a": {"m": {**entry, "ground_truth": {"y": truth}}, "n": {**entry, "ground_truth": {}}},
        "b": {"m": {**entry, "ground_truth": {}}},
    }
    store = LogStore(tmp_path, {})
    store.write("hyp", theirs)
    store.write("hyp", ours)
    asked = store.read("hyp", CAT)["asked"]
    assert set(asked["a"]["m"]["ground_truth"]) == {"x", "y"}
    assert set(asked) == {"a", "b"}
    assert set(asked["a"]) == {"m", "n"}
    assert masked_of(ours) == ([], [])
    assert ours["self"] == {ANSWER_TYPE: {QUESTIONS: {"questions": []}, "answers": []}}


def _write_many(folder, start):
    store = LogStore(folder, {})
    entry = {"answer": "a", "answerability": None, "bartscore": 0.5, "ground_truth": {}}
    for number in range(start, start + 40):
        log = new_log("hyp", CAT, [], [])
        log["asked"] = {str(number): {"m": entry}}
        store.write("hyp", log)


def test_two_processes_share_a_store(tmp_path):
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_write_many, args=(tmp_path, start)) for start in (0, 100)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0]
    store = LogStore(tmp_path, {})
    assert problem(store.read("hyp", CAT), "hyp", CAT) == ""
    assert store.damaged == 0
    assert len(list((store.folder / "hyp").iterdir())) == 1
