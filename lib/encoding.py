"""Examples to rows of token ids: `encode_for` for a model of either kind, `pack` for plain text, `Parts` for streams.

Rows hold `input_ids`, `attention_mask` and `labels` as lists.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence

from torch.utils.data import IterableDataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from lib.data.examples import Example

IGNORED = -100  # label of padding: PyTorch's cross entropy leaves it out


def encode_for(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    examples: Sequence[Example],
    max_input: int,
    max_target: int,
) -> list[dict]:
    """Return rows for a model of either kind."""
    how = encode if model.config.is_encoder_decoder else encode_causal
    return how(tokenizer, examples, max_input, max_target)


def encode(
    tokenizer: PreTrainedTokenizerBase, examples: Sequence[Example], max_input: int, max_target: int
) -> list[dict]:
    """Return rows of token ids.

    Inputs are cut from the left, so that step and question stay. Labels are the target's tokens and the end token,
    without a begin token: the decoder starts from its start token alone, in training and generation alike.

    Parameters
    ----------
    max_input, max_target : int
        Tokens, special tokens counted.
    """
    inputs = tokenizer([e.prompt for e in examples], truncation=True, max_length=max_input)
    targets = tokenizer([e.target for e in examples], add_special_tokens=False)
    return [
        {"input_ids": ids, "attention_mask": mask, "labels": [*target[: max_target - 1], tokenizer.eos_token_id]}
        for ids, mask, target in zip(inputs.input_ids, inputs.attention_mask, targets.input_ids, strict=True)
    ]


def encode_causal(
    tokenizer: PreTrainedTokenizerBase, examples: Sequence[Example], max_input: int, max_target: int
) -> list[dict]:
    """Return rows of token ids for a decoder-only model: prompt, a space, answer and end token in one sequence.

    The loss is on answer and end token alone. Prompts are cut from the left; parameters as in `encode`.
    """
    prompts = tokenizer([e.prompt for e in examples], add_special_tokens=False)
    answers = tokenizer([f" {e.target}" for e in examples], add_special_tokens=False)
    rows = []
    for prompt, answer in zip(prompts.input_ids, answers.input_ids, strict=True):
        kept, labels = prompt[-max_input:], [*answer[: max_target - 1], tokenizer.eos_token_id]
        rows.append(
            {
                "input_ids": [*kept, *labels],
                "attention_mask": [1] * (len(kept) + len(labels)),
                "labels": [*[IGNORED] * len(kept), *labels],
            }
        )
    return rows


def pack(sequences: Sequence[Sequence[int]], length: int) -> list[dict]:
    """Join token sequences and cut the whole into rows of `length` tokens for a causal model; the rest is dropped."""
    tokens = list(itertools.chain.from_iterable(sequences))
    rows = [tokens[start : start + length] for start in range(0, len(tokens) - length + 1, length)]
    return [{"input_ids": row, "attention_mask": [1] * length, "labels": list(row)} for row in rows]


class Parts(IterableDataset):
    """A data set in parts that never lie in memory together: `read(part)` gives a part's rows, in its order.

    A resumed training passes over what it has seen, part by part.
    """

    def __init__(self, parts: Sequence, read: Callable[[object], Sequence[dict]]):
        self.parts, self.read = parts, read

    def __iter__(self) -> Iterator[dict]:
        """Yield the rows of all parts in order."""
        for part in self.parts:
            yield from self.read(part)
