import itertools
import json
from dataclasses import replace

import pytest
import torch
from torch.utils.data import DataLoader
from transformers import DataCollatorForSeq2Seq

from lib import training
from lib.data import load
from lib.data.examples import step_examples
from lib.encoding import IGNORED, Parts, encode, pack
from lib.models import load_seq2seq
from lib.trainer import LossTrainer
from lib.training import Settings, fit, use_bf16

SETTINGS = Settings(learning_rate=3e-3, updates=12, evaluate_every=4, precision="fp32", device="cpu")


@pytest.fixture
def tiny():
    return load_seq2seq("tiny", dropout=0.1)


@pytest.fixture(scope="module")
def rows():
    _, tokenizer = load_seq2seq("tiny")
    examples = [step_examples(load("openpi-c", split, "sample")) for split in ("train", "dev")]
    return tuple(encode(tokenizer, some, 128, 100) for some in examples)


def collate(tiny, rows):
    model, tokenizer = tiny
    return DataCollatorForSeq2Seq(tokenizer, model=model, label_pad_token_id=IGNORED)(rows)


def test_labels_end_with_the_end_token_and_start_without_a_begin_token(tiny):
    _, tokenizer = tiny
    example = step_examples(load("openpi-c", "train", "sample"))[0]
    (row,) = encode(tokenizer, [example], 128, 300)
    assert row["labels"][-1] == tokenizer.eos_token_id
    assert tokenizer.bos_token_id not in row["labels"]
    assert tokenizer.decode(row["labels"][:-1]) == example.target
    (cut,) = encode(tokenizer, [example], 128, 10)
    assert cut["labels"] == [*row["labels"][:9], tokenizer.eos_token_id]
    (short,) = encode(tokenizer, [example], 12, 10)
    assert tokenizer.decode(short["input_ids"], skip_special_tokens=True).endswith("Now, what happens?")


def test_loss_at_the_first_step_equals_a_hand_computed_one_without_padding(tiny, rows):
    model, _ = tiny
    model.eval()
    batch = collate(tiny, [dict(row) for row in rows[0][:3]])
    assert (batch["labels"] == IGNORED).any()
    with torch.no_grad():
        loss = model(**batch).loss.item()
        total = count = 0
        for row in rows[0][:3]:
            start = [model.config.decoder_start_token_id, *row["labels"][:-1]]
            logits = model(torch.tensor([row["input_ids"]]), decoder_input_ids=torch.tensor([start])).logits[0]
            chosen = logits.log_softmax(-1)[torch.arange(len(start)), torch.tensor(row["labels"])]
            total, count = total - chosen.sum().item(), count + len(start)  # the end token counts
    assert loss == pytest.approx(total / count, abs=1e-4)


def test_fit_keeps_the_best_checkpoint_and_reports(tiny, rows, tmp_path, capsys):
    model, tokenizer = tiny
    scores = iter([0.1, 0.9, 0.2])
    weights = []

    def score(net):
        weights.append(net.model.shared.weight.detach().clone())
        return next(scores)

    report = fit(model, tokenizer, *rows, tmp_path, SETTINGS, score=score)
    assert (report.updates, report.best_update, report.best_dev_score) == (12, 8, 0.9)
    assert torch.equal(model.model.shared.weight, weights[1])
    assert [e["update"] for e in report.curve if "dev_loss" in e] == [4, 8, 12]
    assert report.train_loss < 7
    assert report.tokens > 12 * 8 * 10
    assert report.device == "cpu"
    printed = capsys.readouterr().out.strip().splitlines()
    assert len(printed) == 3
    assert "dev score 0.9000" in printed[1]
    json.dumps(training.as_record(report))


def test_without_a_score_the_dev_loss_chooses(tiny, rows, tmp_path):
    report = fit(*tiny, *rows, tmp_path, SETTINGS)
    losses = {entry["update"]: entry["dev_loss"] for entry in report.curve if "dev_loss" in entry}
    assert report.best_update == min(losses, key=losses.get)
    assert report.best_dev_score is None


class Killed(Exception):
    pass


def die_at(monkeypatch, call):
    """Let the n-th training step raise."""
    calls = itertools.count(1)
    step = LossTrainer.training_step

    def dying(self, *arguments, **keywords):
        if next(calls) == call:
            raise Killed
        return step(self, *arguments, **keywords)

    monkeypatch.setattr(LossTrainer, "training_step", dying)


@pytest.mark.parametrize(
    ("killed", "last"), [(7, 4), (11, 8), (15, 12)], ids=["first epoch", "its end", "second epoch"]
)
@pytest.mark.parametrize("batch_size", [8, 1])
def test_a_killed_training_that_is_resumed_ends_like_an_undisturbed_one(
    rows, tmp_path, capsys, monkeypatch, killed, last, batch_size
):
    """Killed in the middle of an epoch (8 updates each), between two checkpoints: also the order of rows goes on."""
    settings = replace(SETTINGS, updates=16, batch_size=batch_size, accumulation=8 // batch_size)
    undisturbed = fit(*load_seq2seq("tiny"), *rows, tmp_path / "a", settings)
    with monkeypatch.context() as patch:
        die_at(patch, killed if batch_size == 8 else 8 * killed - 10)  # an epoch's last update has fewer passes
        with pytest.raises(Killed):
            fit(*load_seq2seq("tiny"), *rows, tmp_path / "b", settings)
    resumed = fit(*load_seq2seq("tiny"), *rows, tmp_path / "b", settings)
    assert f"resuming after update {last}\n" in capsys.readouterr().out
    assert resumed.train_loss == pytest.approx(undisturbed.train_loss, abs=1e-6)
    assert resumed.best_dev_loss == pytest.approx(undisturbed.best_dev_loss, abs=1e-6)
    assert resumed.tokens == undisturbed.tokens
    assert resumed.wall_time_seconds > 0


def test_an_update_in_two_passes_is_the_update_in_one(rows, tmp_path):
    """The stock loss of an encoder-decoder is a mean over each pass, which no number of passes would change."""
    found = []
    for batch_size, accumulation in ((8, 1), (4, 2)):
        model, tokenizer = load_seq2seq("tiny", dropout=0.0)
        settings = replace(SETTINGS, batch_size=batch_size, accumulation=accumulation)
        fit(model, tokenizer, *rows, tmp_path / str(batch_size), settings)
        found.append(model.state_dict())
    for name, value in found[0].items():
        torch.testing.assert_close(found[1][name], value, atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    "settings",
    [SETTINGS, replace(SETTINGS, epochs=1.5), replace(SETTINGS, updates=6)],
    ids=["epochs", "part of an epoch", "updates"],
)
def test_a_finished_training_that_is_started_again_trains_no_more(rows, tmp_path, settings):
    """As when what follows it was stopped: not one update more, and the best weights again."""
    first, tokenizer = load_seq2seq("tiny")
    done = fit(first, tokenizer, *rows, tmp_path, settings)
    second, _ = load_seq2seq("tiny", seed=1)
    again = fit(second, tokenizer, *rows, tmp_path, settings)
    assert (again.updates, again.best_update, again.tokens) == (done.updates, done.best_update, done.tokens)
    assert again.curve == done.curve
    for name, value in first.state_dict().items():
        assert torch.equal(second.state_dict()[name], value), name


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth"])
def test_a_checkpoint_that_was_cut_short_is_passed_over_for_the_one_before(rows, tmp_path, capsys, monkeypatch, name):
    """As a full disk or a power cut leaves one; killed while it writes one, a training leaves no trainer_state.json."""
    undisturbed = fit(*load_seq2seq("tiny"), *rows, tmp_path / "a", SETTINGS)
    with monkeypatch.context() as patch:
        die_at(patch, 11)
        with pytest.raises(Killed):
            fit(*load_seq2seq("tiny"), *rows, tmp_path / "b", SETTINGS)
    path = tmp_path / "b" / "checkpoint-8" / name
    path.write_bytes(path.read_bytes()[:-7])
    resumed = fit(*load_seq2seq("tiny"), *rows, tmp_path / "b", SETTINGS)
    printed = capsys.readouterr().out
    assert "checkpoint-8 is of no use and removed" in printed
    assert "resuming after update 4" in printed
    assert resumed.best_dev_loss == pytest.approx(undisturbed.best_dev_loss, abs=1e-6)


@pytest.mark.parametrize("lost", ["trainer_state.json", "model.safetensors"])
def test_without_a_whole_checkpoint_a_training_starts_over(rows, tmp_path, capsys, lost):
    """Also where the last one is whole and the best one, which the end asks for, is not."""
    settings, scores = replace(SETTINGS, updates=8), itertools.count(2, -1)
    fit(*load_seq2seq("tiny"), *rows, tmp_path, settings, score=lambda model: next(scores))
    (tmp_path / "checkpoint-4" / lost).unlink()
    if lost == "trainer_state.json":
        (tmp_path / "checkpoint-8" / lost).write_text('{"epoch": ')
    report = fit(*load_seq2seq("tiny"), *rows, tmp_path, settings, score=lambda model: next(scores))
    printed = capsys.readouterr().out
    assert printed.count("is of no use and removed") == 2
    assert "resuming" not in printed
    assert report.updates == 8


def test_a_custom_loss_is_the_one_that_is_minimised(tiny, rows, tmp_path):
    def loss(model, batch, number):
        return 0.0 * model(**batch).loss + model.model.shared.weight.square().sum()

    model, tokenizer = tiny
    before = model.model.shared.weight.square().sum().item()
    fit(model, tokenizer, *rows, tmp_path, SETTINGS, loss=loss)
    assert model.model.shared.weight.square().sum().item() < 0.95 * before


def test_grouping_by_length_pads_less_than_chance_and_gives_every_row_once(tiny, rows, tmp_path):
    model, tokenizer = tiny
    many = rows[0] * 6
    trainer = LossTrainer(
        model=model, args=training._arguments(tmp_path, SETTINGS, "fp32", False, False), train_dataset=many,
        eval_dataset=rows[1], data_collator=DataCollatorForSeq2Seq(tokenizer, model=model),
    )  # fmt: skip
    order = list(trainer._get_train_sampler(many))
    assert sorted(order) == list(range(len(many)))

    def padding(indices):
        batches = DataLoader(
            [many[i] for i in indices], batch_size=8, collate_fn=lambda b: [len(row["labels"]) for row in b]
        )
        padded = sum(max(lengths) * len(lengths) for lengths in batches)
        return 1 - sum(len(row["labels"]) for row in many) / padded

    assert padding(order) < 0.7 * padding(range(len(many)))


def test_every_label_token_of_an_epoch_counts_the_same_whatever_update_it_is_in(tiny, rows, tmp_path, monkeypatch):
    """A short answer in an update of its own: its gradient is that of its tokens, not of a whole update."""
    model, tokenizer = tiny
    seen = []
    compute = LossTrainer.compute_loss

    def spy(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        value = compute(self, model, inputs, return_outputs, num_items_in_batch)
        if model.training:
            with torch.no_grad():
                labels = inputs["labels"]
                model.eval()
                total = model(**inputs).loss.item() * int((labels != IGNORED).sum())
                model.train()
            seen.append((value.item(), total))
        return value

    monkeypatch.setattr(LossTrainer, "compute_loss", spy)
    model = load_seq2seq("tiny", dropout=0.0)[0]
    some = [*rows[0][:8], *({**row, "labels": row["labels"][:2]} for row in rows[0][:8])]
    settings = training.Settings(learning_rate=0.0, batch_size=4, updates=4, evaluate_every=4, precision="fp32")
    report = training.fit(model, tokenizer, some, rows[1], tmp_path, settings)
    with torch.no_grad():
        alone = [(len(row["labels"]), model.eval()(**collate(tiny, [dict(row)])).loss.item()) for row in rows[1]]
    tokens = sum(number for number, _ in alone)
    assert report.best_dev_loss == pytest.approx(sum(n * loss for n, loss in alone) / tokens, rel=0.02)
    mean = sum(len(row["labels"]) for row in some) / len(some) * 4
    assert len(seen) == 4
    for value, total in seen:
        assert value == pytest.approx(total / mean, rel=1e-4)
    assert max(value for value, _ in seen) > 3 * min(value for value, _ in seen)


def test_a_kept_model_loads_again_and_replaces_what_was_there(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(training, "ROOT", tmp_path)
    assert training.keep_model(*tiny, "") is None
    (tmp_path / "models" / "mine").mkdir(parents=True)
    (tmp_path / "models" / "mine" / "old").write_text("")
    folder = training.keep_model(*tiny, "models/mine")
    assert torch.equal(load_seq2seq(str(folder))[0].lm_head.weight, tiny[0].lm_head.weight)
    assert [path.name for path in folder.parent.iterdir()] == ["mine"]
    assert not (folder / "old").exists()


def test_early_stopping_stops(tiny, rows, tmp_path):
    report = fit(*tiny, *rows, tmp_path, replace(SETTINGS, updates=40, patience=2), score=lambda model: 0.5)
    assert report.updates == 12  # the first is the best, two more are no better


def test_parts_are_read_one_after_the_other_and_a_resumed_training_passes_over_what_it_saw(rows, tmp_path, monkeypatch):
    train, dev = rows
    read = []

    def part(number):
        read.append(number)
        return train[16 * number : 16 * number + 16]

    whole = fit(*load_seq2seq("tiny"), Parts([0, 1, 2], part), dev, tmp_path / "a", replace(SETTINGS, updates=6))
    assert read == [0, 1, 2]
    with monkeypatch.context() as patch:
        die_at(patch, 6)
        with pytest.raises(Killed):
            fit(*load_seq2seq("tiny"), Parts([0, 1, 2], part), dev, tmp_path / "b", replace(SETTINGS, updates=6))
    resumed = fit(*load_seq2seq("tiny"), Parts([0, 1, 2], part), dev, tmp_path / "b", replace(SETTINGS, updates=6))
    assert resumed.train_loss == pytest.approx(whole.train_loss, abs=1e-6)


def test_packing_fills_rows_and_drops_only_the_rest():
    packed = pack([[1, 2, 3], [4, 5], [6, 7]], 3)
    assert [row["input_ids"] for row in packed] == [[1, 2, 3], [4, 5, 6]]
    assert packed[0]["labels"] == [1, 2, 3]
    assert pack([[1]], 3) == []


def test_precision_is_checked_and_auto_takes_what_is_faster(monkeypatch):
    assert use_bf16("bf16")
    assert not use_bf16("fp32")
    with pytest.raises(ValueError, match="precision='fp16'"):
        use_bf16("fp16")
    for bf16_seconds, expected in ((0.5, True), (0.9, False)):
        monkeypatch.setattr(
            training, "_product_seconds", lambda dtype, s=bf16_seconds: s if dtype is torch.bfloat16 else 1.0
        )
        assert use_bf16("auto", "cpu") is expected
