"""One `fit` for every training, on the Hugging Face `Trainer`: it resumes, keeps the best checkpoint, and reports.

Rows are what `lib.encoding` makes of text. Batches are grouped by length and padded to their longest row, never to a
block size. Started in several processes (`torchrun`), they share every update, see `lib.processes`.
"""

import json
import math
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from accelerate.utils import broadcast
from torch.utils.data import DataLoader, Dataset, IterableDataset
from transformers import (
    DataCollatorForSeq2Seq,
    EarlyStoppingCallback,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)
from transformers.trainer_pt_utils import LengthGroupedSampler
from transformers.trainer_utils import EvalLoopOutput
from transformers.utils import logging

from lib.checkpoints import last_whole, room
from lib.encoding import IGNORED
from lib.paths import ROOT
from lib.processes import Filled, dev_loss, share, with_blank
from lib.results import atomic, is_main_process

# A target token costs about twice an input token: it goes through the decoder and the output vocabulary.
LABEL_COST = 2
ORDER = "order.pt"  # in a checkpoint: the random state that the order of its epoch's rows was drawn from


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
    trainer = _LossTrainer(
        model=model,
        args=arguments,
        train_dataset=with_blank(train) if several and not streamed else train,
        eval_dataset=dev,
        processing_class=tokenizer,
        data_collator=collator or DataCollatorForSeq2Seq(tokenizer, model=model, label_pad_token_id=IGNORED),
        callbacks=[_Log()],
    )
    trainer.own_loss, trainer.own_score = loss, score
    if several:  # dropout lets the processes' random states drift apart, and the order of the rows hangs on them
        trainer.accelerator.rng_types = ["torch"]
    if arguments.train_sampling_strategy == "group_by_length":
        mean = sum(label != IGNORED for row in train for label in row["labels"]) / len(train)
        trainer.labels_an_update = mean * settings.batch_size * settings.accumulation
    # The default printer and progress bar would fill notebooks; `_Log` prints one line a validation.
    trainer.pop_callback(PrinterCallback)
    if settings.patience:
        trainer.add_callback(EarlyStoppingCallback(settings.patience))
    clock = _Clock(Path(folder))
    with clock, _quiet(), room(Path(folder), model.num_parameters()):
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


class _LossTrainer(Trainer):
    """The stock Trainer with a loss and a validation score of the caller's."""

    own_loss: Callable | None = None
    own_score: Callable | None = None
    order: "_Order | None" = None
    order_again: torch.Tensor | None = None  # of the epoch that a resumed training is in
    labels_an_update: float = 0.0  # mean number of label tokens, where rows are grouped by length; 0 for no weights

    def _get_train_sampler(self, train_dataset=None):
        """Group rows by all of their tokens: the stock sampler looks at the inputs alone and pads the targets."""
        rows = train_dataset if train_dataset is not None else self.train_dataset
        sampler, a_pass = None, self.args.train_batch_size * self.args.world_size
        if self.args.world_size > 1:
            rows = rows.datasets[0]  # without the blank one
        if self.args.train_sampling_strategy == "group_by_length":
            cost = LABEL_COST if getattr(self.model.config, "is_encoder_decoder", False) else 0
            lengths = [len(row["input_ids"]) + cost * len(row.get("labels", ())) for row in rows]
            sampler = self.order = _Order(a_pass * self.args.gradient_accumulation_steps, lengths=lengths)
            self.order.again = self.order_again
        if self.args.world_size > 1:
            return Filled(sampler, len(rows), a_pass)
        return sampler or super()._get_train_sampler(train_dataset)

    def _save_rng_state(self, output_dir):
        """Save the order's random state too: the stock Trainer resumes inside an epoch with another order."""
        super()._save_rng_state(output_dir)
        if self.order is not None and self.args.should_save:
            torch.save(self.order.drawn_from, Path(output_dir) / ORDER)

    def evaluation_loop(self, dataloader, *arguments, **keywords):
        """Add the caller's score to what a validation gives, before anything is logged or chosen by it."""
        if self.args.world_size > 1:
            output = self._shared_evaluation()
        else:
            output = super().evaluation_loop(dataloader, *arguments, **keywords)
        if self.own_score is not None:
            output.metrics["eval_score"] = self._score()
        return output

    def _shared_evaluation(self) -> EvalLoopOutput:
        """Return the loss on dev, to which each process gives its part of every batch."""
        model = self.accelerator.unwrap_model(self.model).eval()

        @torch.no_grad()
        def loss(batch):
            with self.compute_loss_context_manager():
                return self.compute_loss(model, self._prepare_inputs(batch))

        rows, sampler = self.eval_dataset, self._get_eval_sampler(self.eval_dataset)
        batches = DataLoader(rows, self.args.eval_batch_size, sampler=sampler, collate_fn=list)
        value = dev_loss(self.accelerator, batches, self.data_collator, loss)
        return EvalLoopOutput(None, None, {"eval_loss": value}, len(rows))

    def _score(self) -> float:
        """Return the caller's score, of the main process alone: two GPUs may decode a step differently."""
        value = torch.zeros((), dtype=torch.float64, device=self.args.device)
        if self.is_world_process_zero():
            value += self.own_score(self.accelerator.unwrap_model(self.model))
        return float(broadcast(value))

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        """Return the caller's loss, or the model's, weighted so that every label token of an epoch counts the same.

        Grouping by length puts short answers into updates of their own, and the mean over such an update would give
        their few tokens the weight of a long update's many: on OpenPI, where one step in 25 has `There will be no
        change.`, a model gave that beginning two and a half times its share.
        """
        tokens, several = (inputs["labels"] != IGNORED).sum(), self.args.world_size > 1
        update = model.training and num_items_in_batch is not None  # a validation's loss stays a mean over tokens
        blank = update and several and not tokens  # nothing but filling: any labels do, their loss counts nothing
        if blank:
            inputs = {**inputs, "labels": inputs["labels"].clamp(min=0)}
        if self.own_loss is not None:
            value, outputs = self.own_loss(model, inputs, num_items_in_batch), {}
            if update and several:  # gradients are averaged over processes
                value = value * self.args.world_size
        else:
            value, outputs = super().compute_loss(model, inputs, True, num_items_in_batch)
            if update and self.model.config.is_encoder_decoder and self.label_smoother is None:
                # BART and T5 return the mean over their rows, whatever the number of label tokens in the update.
                value = value * (tokens / num_items_in_batch)
            if update and self.labels_an_update:
                value = value * (num_items_in_batch / self.labels_an_update)
        if blank:
            value = value * 0
        return (value, outputs) if return_outputs else value


class _Order(LengthGroupedSampler):
    """Rows of like lengths together, in an order that can be drawn again where an epoch is resumed."""

    drawn_from: torch.Tensor | None = None
    again: torch.Tensor | None = None

    def __iter__(self):
        """Draw an epoch's order, the first one from `again` if that is given."""
        if self.again is not None:
            torch.set_rng_state(self.again)
            self.again = None
        self.drawn_from = torch.get_rng_state()
        return super().__iter__()


class _Log(TrainerCallback):
    """Print one plain line a validation, which reads well in a notebook and in a log file."""

    def on_train_begin(self, args, state, control, **kwargs):
        """Start the clock."""
        self.started, self.first = time.monotonic(), state.global_step
        if state.global_step and state.is_world_process_zero:
            print(f"resuming after update {state.global_step}", flush=True)

    def on_evaluate(self, args, state, control, metrics, **kwargs):
        """Print update, losses, speed and time left."""
        if not state.is_world_process_zero:
            return
        done = state.global_step - self.first
        spent = time.monotonic() - self.started
        left = (state.max_steps - state.global_step) * spent / max(done, 1)
        scored = f"  dev score {metrics['eval_score']:.4f}" if "eval_score" in metrics else ""
        train = next((entry["loss"] for entry in reversed(state.log_history) if "loss" in entry), math.nan)
        print(
            f"update {state.global_step:6} of {state.max_steps}  train loss {train:.3f}  "
            f"dev loss {metrics['eval_loss']:.3f}{scored}  {spent / 60:.1f} min, about {left / 60:.0f} left",
            flush=True,
        )


@contextmanager
def _quiet():
    """Silence the library's warnings: at the end it calls tied weights, which are saved once, missing keys."""
    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)


class _Clock:
    """Add up the wall time of all attempts of a training, in a file beside its checkpoints."""

    def __init__(self, folder: Path):
        self.path = folder / "seconds.json"
        self.seconds = json.loads(self.path.read_text()) if self.path.exists() else 0.0

    def __enter__(self):
        """Start."""
        self.started = time.monotonic()
        return self

    def __exit__(self, *error):
        """Stop, also when the training stops with an error."""
        self.seconds += time.monotonic() - self.started
        if not is_main_process():
            return
        with atomic(self.path) as temporary:
            temporary.write_text(json.dumps(self.seconds))


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


def _report(trainer: Trainer, seconds: float, precision: str) -> FitReport:
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
