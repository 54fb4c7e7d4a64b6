"""What the memory decoder attends to: `memory_attention` reads the cross-attention on slots, change by change."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from lib.data import Procedure
from lib.data.examples import step_prompt
from lib.memory import Pair, read_answer, slot_counts
from lib.models import MemoryBart


@dataclass(frozen=True)
class StepAttention:
    """Attention on memory while one step's changes are said.

    Attributes
    ----------
    step : int
        Its number.
    changes, slots : tuple of (entity, attribute)
        What the step says something of, and what the memory holds before it, in order of creation.
    weights : (changes, slots) array
        Share of the cross-attention, averaged over layers, heads and the change's tokens. A row sums to at most 1:
        the rest goes to the input's tokens.
    """

    step: int
    changes: tuple[Pair, ...]
    slots: tuple[Pair, ...]
    weights: np.ndarray


@torch.no_grad()
def memory_attention(
    model: MemoryBart, tokenizer: PreTrainedTokenizerBase, procedure: Procedure, max_input: int = 512
) -> list[StepAttention]:
    """Return, for each step of a procedure, how much each of its changes attends to each slot.

    Parameters
    ----------
    model, tokenizer
        A trained `MemoryBart`.
    procedure : Procedure
        With the changes to be said, which are also what is remembered; see `lib.decoding.with_predictions` for a
        model's own.
    max_input : int
        Input tokens, cut from the left.
    """
    model = model.eval()
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")  # fused attention returns no weights
    try:
        bank, found = model.new_bank(1), []
        for index, step in enumerate(procedure.steps):
            encoded = tokenizer(
                step_prompt(procedure, index), truncation=True, max_length=max_input, return_tensors="pt"
            ).to(model.device)
            answer = read_answer(tokenizer, step.changes, model.config.max_position_embeddings)
            slots, mask = bank.padded()
            output = model(
                encoded.input_ids, encoded.attention_mask, labels=torch.tensor([answer.ids], device=model.device),
                memory=slots, memory_mask=mask, output_attentions=True, output_hidden_states=True,
            )  # fmt: skip
            on_slots = torch.stack(output.cross_attentions).mean((0, 1, 2))[:, encoded.input_ids.shape[1] :].cpu()
            rows = [on_slots[list(mention.tokens)].mean(0).numpy() for mention in answer.mentions]
            weights = np.stack(rows) if rows else np.zeros((0, slots.shape[1]))
            changes = tuple(mention.pair for mention in answer.mentions)
            found.append(StepAttention(step.number, changes, tuple(bank.pairs[0]), weights))
            model.remember(bank, [0], output.decoder_hidden_states[-1], [answer.mentions])
    finally:
        model.set_attn_implementation(before)
    return found


def as_record(steps: Sequence[StepAttention]) -> list[dict]:
    """Return the same as plain lists, pairs as `attribute of entity`, for a figure or a JSON file."""
    return [
        {
            "step": step.step,
            "changes": [f"{attribute} of {entity}" for entity, attribute in step.changes],
            "slots": [f"{attribute} of {entity}" for entity, attribute in step.slots],
            "weights": np.round(step.weights, 6).tolist(),
        }
        for step in steps
    ]


def of_procedures(
    model: MemoryBart,
    tokenizer: PreTrainedTokenizerBase,
    gold: Sequence[Procedure],
    predicted: Sequence[Procedure],
    max_input: int = 512,
) -> dict[str, dict]:
    """Return attention on memory for each procedure, by id: whose changes were said, and the steps.

    The changes are the predicted ones; the gold ones where no predicted change is said once a slot exists.
    """
    found = {}
    for ours, theirs in zip(predicted, gold, strict=True):
        usable = any(
            slots and step.changes
            for slots, step in zip(slot_counts([step.changes for step in ours.steps]), ours.steps, strict=True)
        )
        steps = memory_attention(model, tokenizer, ours if usable else theirs, max_input)
        found[ours.id] = {"changes": "predicted" if usable else "gold", "steps": as_record(steps)}
    return found
