"""One training in two processes (gloo, on the CPU) does what it does in one. About two minutes on two cores."""

import itertools
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from lib import waves
from lib.data import load
from lib.data.examples import step_examples
from lib.encoding import Parts, encode_for
from lib.models import MemoryBart, load_model
from lib.paths import ROOT
from lib.trainer import LossTrainer
from lib.training import Settings, fit

pytestmark = pytest.mark.slow

# 59 rows: the last update of an epoch has three, which leave the second process without any. Two and a half epochs.
ROWS, EPOCHS = 59, 2.5
SETTINGS = Settings(1e-3, 8, epochs=EPOCHS, evaluate_every=1, precision="fp32", device="cpu")
KINDS = {
    "grouped by length": SETTINGS,
    "scored": SETTINGS,
    "accumulated": replace(SETTINGS, batch_size=3, accumulation=2),
    "smoothed": replace(SETTINGS, label_smoothing=0.1),
    "decoder-only": SETTINGS,
    "waves": replace(SETTINGS, batch_size=1, accumulation=2, find_unused_parameters=True),
    "waves one by one": replace(SETTINGS, batch_size=1),
    "stream": replace(SETTINGS, updates=6),
    "dropout": replace(SETTINGS, epochs=3),
}


def train(kind: str, folder: Path, die: bool = False) -> None:
    """Train the tiny model, and leave what it did in `folder`, with the rows that this process saw."""
    name = "tiny-causal" if kind == "decoder-only" else "tiny"
    model, tokenizer = load_model(name, dropout=0.1 if kind == "dropout" else 0.0)
    splits = [load("openpi-c", split, "sample") for split in ("train", "dev")]
    numbers = itertools.count()
    more = {"score": lambda net: next(numbers)} if kind == "scored" else {}  # else the loss on dev chooses
    if kind.startswith("waves"):
        model = MemoryBart.from_bart(model)
        rows, dev = (waves.encode_procedures(tokenizer, split, 128, 100) for split in splits)
        rows = rows[:7]
        more = {"collator": waves.collate(tokenizer), "loss": waves.loss}
    else:
        rows, dev = (encode_for(model, tokenizer, step_examples(split), 128, 100) for split in splits)
        rows = rows[:ROWS]
    seen = record_rows(rows)
    source = Parts([0, 1, 2], lambda part: rows[16 * part : 16 * part + 16]) if kind == "stream" else rows
    if die:
        die_after(6)
    report = fit(model, tokenizer, source, dev, folder / "checkpoints", KINDS[kind], **more)
    rank = os.environ.get("RANK", "0")
    (folder / f"rows-{rank}.json").write_text(json.dumps(seen))
    (folder / f"report-{rank}.json").write_text(json.dumps(vars(report)))
    torch.save(model.state_dict(), folder / f"weights-{rank}.pt")


def record_rows(rows: list) -> list[int]:
    """Return a list that is filled, as the training goes on, with the numbers of the rows that are learned from."""
    seen, step = [], LossTrainer.training_step
    number = {str(row["input_ids"]): at for at, row in enumerate(rows)}

    def recording(self, model, inputs, *arguments, **keywords):
        if "procedures" not in inputs:
            for ids, mask, labels in zip(inputs["input_ids"], inputs["attention_mask"], inputs["labels"], strict=True):
                if (labels >= 0).any():
                    seen.append(number[str(ids[mask.bool()].tolist())])
        return step(self, model, inputs, *arguments, **keywords)

    LossTrainer.training_step = recording
    return seen


def die_after(calls: int) -> None:
    """Let the training stop with an error after some forward passes."""
    step, left = LossTrainer.training_step, iter(range(calls))

    def dying(self, *arguments, **keywords):
        if next(left, None) is None:
            raise SystemExit(3)
        return step(self, *arguments, **keywords)

    LossTrainer.training_step = dying


def start(processes: int, kind: str, folder: Path, *more: str, check: bool = True) -> str:
    """Train in some processes and return what they printed."""
    folder.mkdir(exist_ok=True)
    command = [sys.executable]
    if processes > 1:
        command += ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*command, __file__, kind, str(folder), *more], env=environment, cwd=ROOT, capture_output=True, text=True
    )
    assert not check or done.returncode == 0, done.stderr[-4000:]
    return done.stdout + done.stderr


def assert_same(one: Path, two: Path, ranks: tuple[int, ...] = (0, 1)) -> None:
    """Compare losses by update, scores and final weights."""
    expected, weights = json.loads((one / "report-0.json").read_text()), torch.load(one / "weights-0.pt")
    for rank in ranks:
        report = json.loads((two / f"report-{rank}.json").read_text())
        assert len(report["curve"]) == len(expected["curve"])
        for ours, theirs in zip(report["curve"], expected["curve"], strict=True):
            # Filled rows count as part of an epoch: 4 of 8 where one process has 4 of 7.
            assert {**ours, "epoch": 0} == pytest.approx({**theirs, "epoch": 0}, abs=2e-4)
        assert report["best_update"] == expected["best_update"]
        for name, value in torch.load(two / f"weights-{rank}.pt").items():
            torch.testing.assert_close(value, weights[name], atol=1e-3, rtol=0, msg=lambda text, n=name: f"{n}: {text}")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in {"dropout", "waves one by one"}])
def test_two_processes_train_like_one(kind, tmp_path):
    start(1, kind, tmp_path / "one")
    printed = start(2, kind, tmp_path / "two")
    assert_same(tmp_path / "one", tmp_path / "two")
    report = json.loads((tmp_path / "two" / "report-1.json").read_text())
    assert report["device"] == "2 x cpu"
    assert printed.count("update      1 of") == 1


def test_every_row_of_an_epoch_is_learned_from_once_although_dropout_draws_differently_in_each_process(tmp_path):
    start(2, "dropout", tmp_path)
    seen = [json.loads((tmp_path / f"rows-{rank}.json").read_text()) for rank in (0, 1)]
    # Of 8 updates an epoch the first process has four rows each, the second none in the last.
    for epoch in range(3):
        rows = [row for own, size in zip(seen, (31, 28), strict=True) for row in own[size * epoch : size * (epoch + 1)]]
        assert sorted(rows) == list(range(ROWS))
    reports = [json.loads((tmp_path / f"report-{rank}.json").read_text()) for rank in (0, 1)]
    assert [entry for entry in reports[0]["curve"] if "dev_loss" in entry] == [
        entry for entry in reports[1]["curve"] if "dev_loss" in entry
    ]


def test_a_training_that_was_killed_in_two_processes_goes_on_in_one(tmp_path):
    start(1, "grouped by length", tmp_path / "one")
    assert not start(2, "grouped by length", tmp_path / "two", "die", check=False).count("update      7 of")
    assert {path.name for path in (tmp_path / "two").iterdir()} == {"checkpoints"}
    assert "resuming after update" in start(1, "grouped by length", tmp_path / "two")
    assert_same(tmp_path / "one", tmp_path / "two", ranks=(0,))


def test_what_cannot_be_shared_is_refused_with_what_to_do(tmp_path):
    printed = start(2, "waves one by one", tmp_path, check=False)
    assert "2 processes cannot share an update of batch_size=1 rows and accumulation=1 passes" in printed
    assert not list(tmp_path.glob("report-*.json"))


if __name__ == "__main__":
    torch.use_deterministic_algorithms(True, warn_only=True)
    train(sys.argv[1], Path(sys.argv[2]), die="die" in sys.argv[3:])
