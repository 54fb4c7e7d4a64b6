"""Training on whole procedures in waves: step k of all of them at once, then step k + 1 with what k left in memory.

`encode_procedures` makes rows for `lib.training.fit`, each a pack of whole procedures; `collate` pads them, and `loss`
is the model's. See `lib.models.memory_bart.MemoryBart.in_waves` for what happens to a pack.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from lib.data import Procedure
from lib.data.examples import step_prompt
from lib.encoding import IGNORED
from lib.memory import read_answer

CUT = ("inputs_cut", "answers_cut", "changes_cut")


def encode_procedures(
    tokenizer: PreTrainedTokenizerBase,
    procedures: Sequence[Procedure],
    max_input: int,
    max_target: int,
    steps: int = 8,
    seed: int = 0,
    goal: bool = True,
) -> list[dict]:
    """Return packs of whole procedures with about `steps` steps each, as token ids.

    Procedures of equal length share a pack, drawn with `seed`: then no wave is narrower than another, and an update
    sees about as many steps as with a batch of single ones. A procedure longer than that is a pack of its own.

    Parameters
    ----------
    tokenizer
        A fast one.
    procedures : sequence of Procedure
        With their gold changes: they are the targets and the history.
    max_input, max_target : int
        Tokens of a step's input, cut from the left, and of its answer.

    Returns
    -------
    list of dict
        `input_ids` and `labels`, a list of ids a step; `procedures`, the rows of each procedure's steps in order;
        `mentions`, a list a step; and what was cut: `inputs_cut`, `answers_cut` (in steps), `changes_cut`.
    """
    by_length: dict[int, list[Procedure]] = defaultdict(list)
    for procedure in procedures:
        by_length[len(procedure.steps)].append(procedure)
    packs = []
    for length, some in sorted(by_length.items()):
        if length == 0:
            continue
        random.Random(seed).shuffle(some)
        size = max(1, round(steps / length))
        packs += [some[start : start + size] for start in range(0, len(some), size)]
    return [_pack(tokenizer, some, max_input, max_target, goal) for some in packs]


def truncation(rows: Sequence[dict]) -> dict[str, int]:
    """Return what was cut, summed over packs: steps' inputs, steps' answers, and changes that are not remembered."""
    return {name: sum(row[name] for row in rows) for name in CUT}


def collate(tokenizer: PreTrainedTokenizerBase) -> Callable[[Sequence[dict]], dict]:
    """Return a function from packs to one padded batch, see `MemoryBart.forward`; labels are padded with -100."""

    def batch(rows: Sequence[dict]) -> dict:
        starts = [sum(len(row["labels"]) for row in rows[:at]) for at in range(len(rows))]
        inputs = [torch.tensor(ids) for row in rows for ids in row["input_ids"]]
        labels = [torch.tensor(ids) for row in rows for ids in row["labels"]]
        masks = [torch.ones_like(ids) for ids in inputs]
        return {
            "input_ids": nn.utils.rnn.pad_sequence(inputs, batch_first=True, padding_value=tokenizer.pad_token_id),
            "attention_mask": nn.utils.rnn.pad_sequence(masks, batch_first=True),
            "labels": nn.utils.rnn.pad_sequence(labels, batch_first=True, padding_value=IGNORED),
            "procedures": [
                [start + step for step in own]
                for start, row in zip(starts, rows, strict=True)
                for own in row["procedures"]
            ],
            "mentions": [mentions for row in rows for mentions in row["mentions"]],
        }

    return batch


def loss(model: nn.Module, batch: dict, items: Tensor | int | None = None) -> Tensor:
    """Return the mean cross entropy a label token, over the batch or over an update's `items` label tokens."""
    mean = model(**batch).loss
    return mean if items is None else mean * (batch["labels"] != IGNORED).sum() / items


def _pack(
    tokenizer: PreTrainedTokenizerBase, procedures: Sequence[Procedure], max_input: int, max_target: int, goal: bool
) -> dict:
    """Return one pack."""
    pack: dict = {"input_ids": [], "labels": [], "procedures": [], "mentions": []} | dict.fromkeys(CUT, 0)
    for procedure in procedures:
        first = len(pack["labels"])
        pack["procedures"].append(list(range(first, first + len(procedure.steps))))
        prompts = [step_prompt(procedure, index, goal) for index in range(len(procedure.steps))]
        whole = tokenizer(prompts).input_ids
        cut = tokenizer(prompts, truncation=True, max_length=max_input).input_ids
        for step, every, kept in zip(procedure.steps, whole, cut, strict=True):
            answer = read_answer(tokenizer, step.changes, max_target)
            pack["input_ids"].append(kept)
            pack["labels"].append(answer.ids)
            pack["mentions"].append(answer.mentions)
            pack["inputs_cut"] += len(every) > len(kept)
            pack["answers_cut"] += answer.cut
            pack["changes_cut"] += answer.changes_cut
    return pack
