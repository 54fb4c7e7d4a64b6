import random

import pytest

from lib.data import load
from lib.denoising import noised, warm_up
from lib.models import load_causal, load_seq2seq


@pytest.fixture(scope="module")
def splits():
    return {split: load("openpi-c", split, "sample") for split in ("train", "dev")}


def test_spans_are_replaced_by_one_mask_and_all_else_stays_in_order():
    text = " ".join(f"w{n}" for n in range(400))
    out = noised(text, "[MASK]", random.Random(0)).split()
    kept = [word for word in out if word != "[MASK]"]
    assert kept == [word for word in text.split() if word in set(kept)]
    masks = out.count("[MASK]")
    assert 0.1 < masks / len(out) < 0.3
    assert masks < 400 - len(kept) < 3 * masks
    assert noised(text, "[MASK]", random.Random(0)).split() == out


def test_restoring_is_learned_in_place_and_repeated_exactly(splits, tmp_path):
    records = []
    for name in ("a", "b"):
        model, tokenizer = load_seq2seq("tiny", dropout=0.0)
        before = {key: value.clone() for key, value in model.state_dict().items()}
        records.append(warm_up(model, tokenizer, splits, tmp_path / name, 24, "fp32"))
        assert any((value != before[key]).any() for key, value in model.state_dict().items())
    assert records[0]["updates"] == 24
    assert records[0]["best_dev_loss"] == records[1]["best_dev_loss"]
    model, tokenizer = load_seq2seq("tiny", dropout=0.0)
    longer = warm_up(model, tokenizer, splits, tmp_path / "longer", 120, "fp32")
    assert longer["best_dev_loss"] < records[0]["best_dev_loss"] - 0.5


def test_no_update_leaves_the_model_alone(splits, tmp_path):
    model, tokenizer = load_seq2seq("tiny")
    assert warm_up(model, tokenizer, splits, tmp_path, 0) is None
    assert list(tmp_path.iterdir()) == []


def test_a_decoder_only_model_is_refused(splits, tmp_path):
    with pytest.raises(ValueError, match="denoise_updates=8 with a .* decoder-only: set it to 0"):
        warm_up(*load_causal("tiny"), splits, tmp_path, 8)
    assert list(tmp_path.iterdir()) == []
