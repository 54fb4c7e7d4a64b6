"""The Hugging Face `Trainer` as `lib.training` needs it: our losses and scores, rows in an order that can be resumed.

Several processes share every update and every validation, see `lib.processes`.
"""

import json
import math
import shutil
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path

import torch
from accelerate.utils import broadcast
from torch.utils.data import DataLoader
from transformers import Trainer, TrainerCallback
from transformers.trainer_pt_utils import LengthGroupedSampler
from transformers.trainer_utils import EvalLoopOutput
from transformers.utils import logging

from lib.encoding import IGNORED
from lib.processes import Filled, dev_loss
from lib.results import atomic, is_main_process

# A target token costs about twice an input token: it goes through the decoder and the output vocabulary.
LABEL_COST = 2
ORDER = "order.pt"  # in a checkpoint: the random state that the order of its epoch's rows was drawn from


class LossTrainer(Trainer):
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
        if not self.args.should_save:
            return
        if self.order is not None:
            torch.save(self.order.drawn_from, Path(output_dir) / ORDER)
        if self.args.world_size > 1:  # what one process, started in the place of several, goes on from
            shutil.copyfile(Path(output_dir) / "rng_state_0.pth", Path(output_dir) / "rng_state.pth")

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


class Log(TrainerCallback):
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
def quiet():
    """Silence the library's warnings: at the end it calls tied weights, which are saved once, missing keys."""
    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)


class Clock:
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
