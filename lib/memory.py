"""Entity memory (OpenPI-C paper, sec. 4): `MemoryBank` creates, updates and pads the slots of a batch of procedures.

A slot belongs to one (entity, attribute) of one procedure. `mentions` finds where a step's answer speaks of each pair.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from lib.text import StateChange, to_answer, to_sentence

Pair = tuple[str, str]  # (entity, attribute)


@dataclass(frozen=True)
class Mention:
    """Where an answer speaks of one pair: positions among the answer's tokens."""

    pair: Pair
    tokens: tuple[int, ...]


@dataclass(frozen=True)
class Answer:
    """A step's answer as the decoder reads it.

    Attributes
    ----------
    ids : list of int
        Its tokens and the end token, no begin token.
    mentions : list of Mention
        One a pair, in order of first appearance.
    cut : bool
        Whether tokens were cut off.
    changes_cut : int
        State changes that do not lie whole within the bound on `ids`, and are not remembered therefore.
    """

    ids: list[int]
    mentions: list[Mention]
    cut: bool
    changes_cut: int


def read_answer(tokenizer: PreTrainedTokenizerBase, changes: Sequence[StateChange], max_target: int) -> Answer:
    """Return a step's answer in tokens, with the places where it speaks of each (entity, attribute).

    Parameters
    ----------
    tokenizer
        A fast one: it tells which characters a token covers.
    changes : sequence of StateChange
        Empty for a step without one: the answer says so, and mentions nothing.
    max_target : int
        Tokens, the end token counted.

    Notes
    -----
    A pair that one step changes twice (8% of the pairs in OpenPI-C) is mentioned once, with the tokens of both
    sentences: the paper's `h` of a pair and a step is one vector, pooled from "the text expressing its state change".
    """
    encoded = tokenizer(to_answer(changes), add_special_tokens=False, return_offsets_mapping=True)
    kept = max_target - 1
    found: dict[Pair, tuple[int, ...]] = {}
    start = cut = 0
    for change in changes:
        end = start + len(to_sentence(change))
        tokens = [at for at, (left, right) in enumerate(encoded.offset_mapping) if left < end and right > start]
        if tokens[-1] < kept:
            pair = change.entity, change.attribute
            found[pair] = (*found.get(pair, ()), *tokens)
        else:
            cut += 1
        start = end + len(", ")
    ids = [*encoded.input_ids[:kept], tokenizer.eos_token_id]
    mentions = [Mention(pair, tokens) for pair, tokens in found.items()]
    return Answer(ids, mentions, len(encoded.input_ids) > kept, cut)


def slot_counts(steps: Sequence[Sequence[StateChange]]) -> list[int]:
    """Return how many slots there are before each step of a procedure, given its steps' changes."""
    counts, pairs = [], set()
    for changes in steps:
        counts.append(len(pairs))
        pairs |= {(change.entity, change.attribute) for change in changes}
    return counts


class MemoryBank:
    """The memory of a batch of procedures: a number of slots that differs between them and grows with their steps.

    Parameters
    ----------
    procedures : int
    width : int
        Of the decoder's hidden states.
    update : bool
        Whether a pair that is mentioned again changes its slot; False keeps what it held first.
    device, dtype
        Of the padded slots before anything is remembered; later they follow the hidden states.

    Attributes
    ----------
    pairs : list of dict
        For each procedure, (entity, attribute) -> place of its slot, in order of appearance.

    Notes
    -----
    The bank is functional underneath: `remember` replaces tensors and writes into none, so that slots given out
    before keep their values and their gradients.
    """

    def __init__(self, procedures: int, width: int, update: bool = True, device=None, dtype=torch.float32):
        self.update = update
        self.pairs: list[dict[Pair, int]] = [{} for _ in range(procedures)]
        self._slots = [torch.zeros(0, width, device=device, dtype=dtype) for _ in range(procedures)]

    @property
    def slots(self) -> Tensor:
        """Return all slots, (procedures, slots, width), zeros where a procedure has fewer."""
        return self.padded()[0]

    @property
    def mask(self) -> Tensor:
        """Return which of them are live, (procedures, slots) bool."""
        return self.padded()[1]

    def padded(self, rows: Sequence[int] | None = None) -> tuple[Tensor, Tensor]:
        """Return slots and mask of some procedures, padded to the most slots among them (which may be none).

        Returns
        -------
        slots : (rows, slots, width)
        mask : (rows, slots) bool, True where live
        """
        chosen = self._slots if rows is None else [self._slots[row] for row in rows]
        slots = nn.utils.rnn.pad_sequence(chosen, batch_first=True)
        counts = torch.tensor([len(own) for own in chosen], device=slots.device)
        return slots, torch.arange(slots.shape[1], device=slots.device) < counts[:, None]

    def remember(
        self,
        rows: Sequence[int],
        hidden: Tensor,
        mentions: Sequence[Sequence[Mention]],
        create: nn.Module,
        update: nn.Module,
    ) -> None:
        """Create and update slots after one step of some procedures.

        Parameters
        ----------
        rows : sequence of int
            Their places in the bank, each once.
        hidden : (rows, tokens, width)
            The decoder's final hidden states over that step's answer: those that its tokens are predicted from.
        mentions : sequence of sequences of Mention
            For each row; all of them count as one step, whatever their order.
        create, update : modules from width to 1
            The paper's `W0` and `W>0`: they score the tokens of a pair that is new, and of one that has a slot.

        Notes
        -----
        Paper, sec. 4: a new slot holds the pooled vector; an old one the mean of what it held and the new vector.
        """
        flat = [(place, mention) for place, by_row in enumerate(mentions) for mention in by_row]
        known = [mention.pair in self.pairs[rows[place]] for place, mention in flat]
        if not self.update:
            flat = [entry for entry, old in zip(flat, known, strict=True) if not old]
            known = [False] * len(flat)
        if not flat:
            return
        vectors = _pool(hidden, flat, known, create, update)
        by_row: dict[int, list[int]] = {}
        for at, (place, _) in enumerate(flat):
            by_row.setdefault(place, []).append(at)
        for place, entries in by_row.items():
            row = rows[place]
            pairs, slots = self.pairs[row], self._slots[row].to(vectors)
            old, new = [at for at in entries if known[at]], [at for at in entries if not known[at]]
            if old:
                index = torch.tensor([pairs[flat[at][1].pair] for at in old], device=slots.device)
                slots = slots.index_copy(0, index, (slots[index] + vectors[old]) / 2)
            self._slots[row] = torch.cat([slots, vectors[new]])
            for at in new:
                pairs[flat[at][1].pair] = len(pairs)


def _pool(
    hidden: Tensor, flat: list[tuple[int, Mention]], known: list[bool], create: nn.Module, update: nn.Module
) -> Tensor:
    """Return one vector a mention, (mentions, width): the paper's equation 1."""
    rows = torch.tensor([place for place, _ in flat], device=hidden.device)
    inside = torch.zeros(len(flat), hidden.shape[1], dtype=torch.bool)
    for at, (_, mention) in enumerate(flat):
        inside[at, list(mention.tokens)] = True
    old = torch.tensor(known, device=hidden.device)
    # Both scores for every token: (rows, tokens), then one of them a mention.
    scores = torch.where(old[:, None], update(hidden).squeeze(-1)[rows], create(hidden).squeeze(-1)[rows])
    weights = scores.masked_fill(~inside.to(hidden.device), -torch.inf).softmax(-1)
    return torch.einsum("nt,ntw->nw", weights.to(hidden.dtype), hidden[rows])
