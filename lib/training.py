"""One `fit` for every training, on the Hugging Face `Trainer`: it resumes, keeps the best checkpoint, and reports.

Rows are what `lib.encoding` makes of text. Batches are grouped by length and padded to their longest row, never to a
block size. Started in several processes (`torchrun`), they share every update, see `lib.processes`.
"""

import math
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from torch.utils.data import Dataset, IterableDataset
from transformers import (
    DataCollatorForSeq2Seq,
    EarlyStoppingCallback,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PrinterCallback,
    TrainingArguments,
    set_seed,
)

from lib.checkpoints import last_whole, room
from lib.encoding import IGNORED
from lib.paths import ROOT
from lib.processes import share, with_blank
from lib.results import is_main_process
from lib.trainer import ORDER, Clock, Log, LossTrainer, quiet


@dataclass(frozen=True)
class Settings:
    """How to train.

    Attributes
    ----------
    learning_rate : float
        Peak; decays linearly to 0 after `warmup_updates`.
    batch_size, accumulation : int
        Rows a forward pass, and passes an update; several processes share them.
    epochs : float
        Passes over the data, unless `updates` is given.
    updates : int
        Number of updates; 0 for `epochs`.
    evaluate_every : int
        Updates between validations, each with a checkpoint; 0 for once an epoch.
    patience : int
        Stop after this many validations without a better one; 0 never.
    max_gradient_norm, weight_decay, beta1, beta2, label_smoothing : float
        Of the clipping, of AdamW and of the loss.
    precision : str
        `fp32`, `bf16` (autocast; weights stay fp32), or `auto`, see `use_bf16`.
    find_unused_parameters : bool
        For several processes, where a step leaves some weights unused.
    device : str
        Empty for what torch finds; `cpu` keeps off a GPU.
    """

    learning_rate: float = 5.0e-5
    batch_size: int = 8
    accumulation: int = 1
    epochs: float = 30.0
    updates: int = 0
    warmup_updates: int = 0
    evaluate_every: int = 0
    patience: int = 0
    max_gradient_norm: float = 1.0
    weight_decay: float = 0.0
    beta1: float = 0.9
    beta2: float = 0.999
    label_smoothing: float = 0.0
    precision: str = "auto"
    find_unused_parameters: bool = False
    seed: int = 0
    device: str = ""


@dataclass(frozen=True)
class FitReport:
    """What a training did.

    Attributes
    ----------
    updates, best_update : int
        Done, and the one whose weights the model has now.
    best_dev_loss, train_loss : float
        Mean cross entropy a token, of the best validation and of the last logged updates.
    best_dev_score : float or None
        The caller's score at the best validation.
    tokens : int
        Input tokens without padding that were trained on, over all attempts of a resumed training.
    wall_time_seconds : float
        Over all attempts.
    precision, device : str
        As used; `2 x cpu` for two processes.
    curve : list of dict
        `update`, `epoch` and `train_loss`, `dev_loss` or `dev_score`.
    """

    updates: int
    best_update: int
    best_dev_loss: float
    best_dev_score: float | None
    train_loss: float
    tokens: int
    wall_time_seconds: float
    precision: str
    device: str
    curve: list[dict] = field(repr=False)


def fit(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    train: Dataset | IterableDataset | Sequence[dict],
    dev: Dataset | Sequence[dict],
    folder: Path,
    settings: Settings,
    collator: Callable | None = None,
    loss: Callable | None = None,
    score: Callable[[PreTrainedModel], float] | None = None,
) -> FitReport:
    """Train a model in place and leave the weights of its best validation in it.

    Parameters
    ----------
    model, tokenizer
        From `lib.models`.
    train, dev : datasets of rows
        Rows as `lib.encoding` makes them. An `IterableDataset` (see its `Parts`) needs `settings.updates`.
    folder : Path
        For checkpoints. A training that was stopped goes on from its last whole one, also in the middle of an epoch;
        the folder must belong to these settings and this data.
    settings : Settings
    collator : callable, optional
        From rows to a padded batch; default for encoder-decoders.
    loss : callable, optional
        From (model, batch, number of label tokens in the update or None) to a scalar; default the model's own.
    score : callable, optional
        From the model to a number, higher is better, at every validation: then it chooses the best checkpoint
        instead of the loss on `dev`.

    Returns
    -------
    FitReport

    Raises
    ------
    OSError
        If the disk holds no further checkpoint: `lib.paths.cannot_write`. Started again, the training goes on.
    """
    set_seed(settings.seed)
    precision = "bf16" if use_bf16(settings.precision, settings.device) else "fp32"
    streamed = isinstance(train, IterableDataset)
    arguments = _arguments(folder, settings, precision, streamed, score is not None)
    several = arguments.world_size > 1
    trainer = LossTrainer(
        model=model,
        args=arguments,
        train_dataset=with_blank(train) if several and not streamed else train,
        eval_dataset=dev,
        processing_class=tokenizer,
        data_collator=collator or DataCollatorForSeq2Seq(tokenizer, model=model, label_pad_token_id=IGNORED),
        callbacks=[Log()],
    )
    trainer.own_loss, trainer.own_score = loss, score
    if several:  # dropout lets the processes' random states drift apart, and the order of the rows hangs on them
        trainer.accelerator.rng_types = ["torch"]
    if arguments.train_sampling_strategy == "group_by_length":
        mean = sum(label != IGNORED for row in train for label in row["labels"]) / len(train)
        trainer.labels_an_update = mean * settings.batch_size * settings.accumulation
    # The default printer and progress bar would fill notebooks; `Log` prints one line a validation.
    trainer.pop_callback(PrinterCallback)
    if settings.patience:
        trainer.add_callback(EarlyStoppingCallback(settings.patience))
    clock = Clock(Path(folder))
    with clock, quiet(), room(Path(folder), model.num_parameters()):
        last, state = last_whole(Path(folder))
        if state and state.global_step >= state.max_steps:
            # Resumed at its last update the Trainer would make one more (a private call: transformers is pinned).
            trainer.state = state
            trainer._load_best_model()
        else:
            # At the end of an epoch the Trainer itself goes on rightly: the next order is drawn from what it restores.
            if last and state.epoch % 1 and (order := Path(last) / ORDER).exists():
                trainer.order_again = torch.load(order)
            trainer.train(resume_from_checkpoint=last)
        trainer.accelerator.wait_for_everyone()  # the main process may remove the checkpoints next
    return _report(trainer, clock.seconds, precision)


def keep_model(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, name: str) -> Path | None:
    """Save a trained model with its tokenizer into a folder, relative to the project; an empty name keeps nothing.

    The folder is complete or not there: what it held before is replaced at the end. Of several processes the main one
    saves.
    """
    if not name:
        return None
    folder = ROOT / name
    if not is_main_process():
        return folder
    temporary = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(temporary, ignore_errors=True)
    for part in (model, tokenizer):
        part.save_pretrained(temporary)
    shutil.rmtree(folder, ignore_errors=True)
    temporary.rename(folder)
    return folder


def use_bf16(precision: str, device: str = "") -> bool:
    """Return whether to train under bf16 autocast.

    `auto`: on GPUs that support it, and on a processor where a bf16 product is measured to be clearly faster than
    an fp32 one: instruction flags do not tell (`tests/benchmarks/benchmark_training.py`).
    """
    if precision not in {"fp32", "bf16", "auto"}:
        raise ValueError(f"precision={precision!r}: expected fp32, bf16 or auto")
    if precision != "auto":
        return precision == "bf16"
    if device != "cpu" and torch.cuda.is_available():
        return torch.cuda.is_bf16_supported()
    if device != "cpu" and torch.backends.mps.is_available():
        return False
    return _product_seconds(torch.float32) > 1.3 * _product_seconds(torch.bfloat16)


def _product_seconds(dtype: torch.dtype, size: int = 768, tries: int = 5) -> float:
    """Return the shortest time of a square matrix product on this processor."""
    a = torch.ones(size, size, dtype=dtype)
    seconds = []
    for _ in range(tries):
        started = time.perf_counter()
        a @ a
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def _arguments(folder: Path, settings: Settings, precision: str, streamed: bool, scored: bool) -> TrainingArguments:
    """Translate our settings."""
    often = {"eval_strategy": "steps", "save_strategy": "steps"} | dict.fromkeys(
        ("eval_steps", "save_steps", "logging_steps"), settings.evaluate_every
    )
    once = dict.fromkeys(("eval_strategy", "save_strategy", "logging_strategy"), "epoch")
    arguments = TrainingArguments(
        output_dir=str(folder),
        learning_rate=settings.learning_rate,
        per_device_eval_batch_size=4 * settings.batch_size,  # of several processes together
        num_train_epochs=settings.epochs,
        max_steps=settings.updates or -1,
        warmup_steps=settings.warmup_updates,
        lr_scheduler_type="linear",
        max_grad_norm=settings.max_gradient_norm,
        weight_decay=settings.weight_decay,
        adam_beta1=settings.beta1,
        adam_beta2=settings.beta2,
        label_smoothing_factor=settings.label_smoothing,
        # Batches of one row need no grouping, and the sampler would sort them.
        train_sampling_strategy="random" if streamed or settings.batch_size == 1 else "group_by_length",
        bf16=precision == "bf16",
        # bf16 on a machine without an accelerator has to be asked for.
        use_cpu=settings.device == "cpu" or not torch.accelerator.is_available(),
        ddp_find_unused_parameters=settings.find_unused_parameters,
        include_num_input_tokens_seen="non_padding",
        seed=settings.seed,
        load_best_model_at_end=True,
        metric_for_best_model="eval_score" if scored else "eval_loss",
        greater_is_better=scored,
        save_total_limit=2,
        remove_unused_columns=False,
        disable_tqdm=True,
        report_to="none",
        dataloader_pin_memory=torch.cuda.is_available(),
        **(often if settings.evaluate_every else once),
    )
    arguments.per_device_train_batch_size, arguments.gradient_accumulation_steps = share(
        settings.batch_size, settings.accumulation, arguments.world_size
    )
    # One process with several GPUs in sight would train on all of them, with as many times the rows in an update.
    arguments._n_gpu = min(arguments.n_gpu, 1)
    if arguments.world_size > 1:  # each process reads a stream; rows padded apart could not be handed around
        arguments.accelerator_config.dispatch_batches = False
    return arguments


def _report(trainer: LossTrainer, seconds: float, precision: str) -> FitReport:
    """Collect what the training did."""
    state, processes = trainer.state, trainer.args.world_size
    curve = [
        {"update": entry["step"], "epoch": round(entry["epoch"], 3), name: entry[key]}
        for entry in state.log_history
        for key, name in (("loss", "train_loss"), ("eval_loss", "dev_loss"), ("eval_score", "dev_score"))
        if key in entry
    ]
    best = state.best_global_step
    dev_losses = {entry["update"]: entry["dev_loss"] for entry in curve if "dev_loss" in entry}
    dev_scores = {entry["update"]: entry["dev_score"] for entry in curve if "dev_score" in entry}
    last = [entry["train_loss"] for entry in curve if "train_loss" in entry]
    return FitReport(
        updates=state.global_step,
        best_update=best,
        best_dev_loss=dev_losses[best],
        best_dev_score=dev_scores.get(best),
        train_loss=last[-1] if last else math.nan,
        tokens=int(state.num_input_tokens_seen),
        wall_time_seconds=round(seconds, 1),
        precision=precision,
        device=str(trainer.args.device) if processes == 1 else f"{processes} x {trainer.args.device.type}",
        curve=curve,
    )


def as_record(report: FitReport) -> dict:
    """Return what `metrics.json` holds of a training, without the curve."""
    return {key: value for key, value in asdict(report).items() if key != "curve"}
