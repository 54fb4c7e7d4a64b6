import pytest
import torch
from torch.nn.functional import layer_norm

from lib.encoding import IGNORED
from lib.models import load_seq2seq
from lib.token_questeval import prepare
from lib.token_questeval.restoring import open_decoder, restoring_rows, warm_up

PAIRS = [
    ("fill the pot with fresh water", "pour clean water into the pot"),
    ("cut the bread into thin slices", "slice the bread thinly"),
    ("wait until the paint is dry", "let the paint dry"),
    ("dig a hole in the garden", "make a hole in the soil of the garden"),
]


@pytest.fixture
def prepared():
    model, tokenizer = load_seq2seq("tiny", dropout=0.0)
    prepare(model, tokenizer)
    return model, tokenizer


def test_labels_are_the_first_pieces_of_the_masked_words_at_their_masks(prepared):
    _, tokenizer = prepared
    rows = restoring_rows(tokenizer, PAIRS)
    assert len(rows) == 2 * len(PAIRS)
    mask = tokenizer.convert_tokens_to_ids("<mask>")
    for row, (first, other) in zip(rows, [order for pair in PAIRS for order in (pair, pair[::-1])], strict=True):
        at = [place for place, token in enumerate(row["input_ids"]) if token == mask]
        assert len(at) == max(1, round(0.2 * len(first.split())))
        assert [place for place, label in enumerate(row["labels"]) if label != IGNORED] == at
        pieces = {tokenizer(word, add_special_tokens=False).input_ids[0] for word in first.split()}
        assert {row["labels"][place] for place in at} <= pieces
        left, right = tokenizer.decode(row["input_ids"], skip_special_tokens=False).split("<sep>")
        assert right.replace("</s>", "").strip() == other
        restored = left.replace("<s>", "").split()
        words = first.split()
        assert [word for word, seen in zip(words, restored, strict=True) if seen != "<mask>"] == [
            word for word in restored if word != "<mask>"
        ]
    assert rows == restoring_rows(tokenizer, PAIRS)
    assert rows != restoring_rows(tokenizer, PAIRS, seed=1)


def test_a_literal_mask_in_a_text_is_no_mask(prepared):
    _, tokenizer = prepared
    rows = restoring_rows(tokenizer, [("write <mask> on the board", "put the string <mask> there <sep>")])
    mask, separator = (tokenizer.convert_tokens_to_ids(token) for token in ("<mask>", "<sep>"))
    for row, masked in zip(rows, (1, 2), strict=True):  # of 7 and 9 words: `< mask >` is three
        assert row["input_ids"].count(mask) == sum(label != IGNORED for label in row["labels"]) == masked
        assert row["input_ids"].count(separator) == 1


def test_pairs_with_an_empty_or_a_long_text_are_passed_over(prepared):
    _, tokenizer = prepared
    long = "word " * 31
    assert restoring_rows(tokenizer, [("", "a"), (long, "a"), ("a", long)]) == []
    model, tokenizer = prepared
    with pytest.raises(ValueError, match="restore_updates=5 .*: 0 of 1 pairs to learn from and 8 of 4 held out are"):
        warm_up(model, tokenizer, [("a", long)], PAIRS, None, 5)


def test_the_encoder_learns_and_the_decoder_keeps_what_it_asks_for(prepared, tmp_path):
    model, tokenizer = prepared
    before = {name: value.clone() for name, value in model.state_dict().items()}
    records = [
        warm_up(model, tokenizer, PAIRS, PAIRS, tmp_path / "short", 8, "fp32"),
        warm_up(model, tokenizer, PAIRS, PAIRS, tmp_path / "long", 60, "fp32"),
    ]
    assert records[1]["best_dev_loss"] < records[0]["best_dev_loss"] - 0.3
    after = model.state_dict()
    for name, value in before.items():
        if name.startswith("model.decoder.layers") and any(part in name for part in ("q_proj", "k_proj", "fc1")):
            assert torch.equal(value, after[name]), name
    assert any((value != after[name]).any() for name, value in before.items() if ".encoder.layers" in name)


def test_an_open_decoder_hands_through_the_states_it_attends_to(prepared):
    model, tokenizer = prepared
    open_decoder(model)
    inputs = tokenizer("fill the <mask> with water <sep> pour water into it", return_tensors="pt")
    states = model.get_encoder()(**inputs).last_hidden_state
    decoder = model.get_decoder()
    for layer in decoder.layers:  # without queries all states weigh the same
        torch.nn.init.zeros_(layer.encoder_attn.q_proj.weight)
        torch.nn.init.zeros_(layer.encoder_attn.q_proj.bias)
    start = torch.tensor([[tokenizer.eos_token_id]])
    embedded = decoder.embed_tokens(start) * getattr(decoder.embed_tokens, "embed_scale", 1.0)
    expected = decoder.layernorm_embedding(embedded + decoder.embed_positions(start))
    for _ in decoder.layers:
        width = (expected.shape[-1],)
        added = layer_norm(expected, width) + states.mean(dim=1, keepdim=True)
        expected = layer_norm(layer_norm(added, width), width)
    seen = decoder(input_ids=start, encoder_hidden_states=states).last_hidden_state
    torch.testing.assert_close(seen, expected, rtol=1e-4, atol=1e-4)


def test_a_loaded_model_and_another_kind_keep_their_decoders(prepared, tmp_path):
    model, tokenizer = prepared
    model.save_pretrained(tmp_path / "bart")
    tokenizer.save_pretrained(tmp_path / "bart")
    for name in (str(tmp_path / "bart"), "tiny-t5"):
        loaded = load_seq2seq(name)
        prepare(*loaded)
        before = {part: value.clone() for part, value in loaded[0].state_dict().items()}
        warm_up(*loaded, PAIRS, PAIRS, tmp_path / f"restoring-{loaded[0].config.model_type}", 5)
        moved = {part for part, value in loaded[0].state_dict().items() if (value != before[part]).any()}
        assert any("encoder" in part for part in moved)
        assert not any(".decoder.layers" in part or part.startswith("decoder.block") for part in moved)


def test_a_warm_up_is_repeated_exactly(tmp_path):
    records = []
    for name in ("a", "b"):
        model, tokenizer = load_seq2seq("tiny", dropout=0.0)
        prepare(model, tokenizer)
        records.append(warm_up(model, tokenizer, PAIRS, PAIRS, tmp_path / name, 6, "fp32")["best_dev_loss"])
    assert records[0] == records[1]


def test_no_update_leaves_the_model_alone(prepared, tmp_path):
    assert warm_up(*prepared, PAIRS, PAIRS, tmp_path, 0) is None
    assert list(tmp_path.iterdir()) == []
