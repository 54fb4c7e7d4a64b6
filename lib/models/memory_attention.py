"""Cross-attention to encoder tokens and memory slots in one softmax, by replacing BART's four projections.

The decoder's source is the encoder's tokens followed by the slots. `BartAttention.forward` stays the library's: the
key and value projections treat the last `slots` positions with weights of their own. For queries of their own,
`[q; q_m] . [k; 0] = q . k` and `[q; q_m] . [0; k_m] = q_m . k_m`: the heads become twice as wide, and the scale
stays. Each projection is an `nn.Linear` with the stock weights inherited, so that a stock checkpoint loads into it.
"""

import torch
from torch import Tensor, nn
from transformers.models.bart.modeling_bart import BartAttention


class MemoryProjection(nn.Linear):
    """A key or value projection with a second weight for the memory slots at the end of the source.

    Attributes
    ----------
    slots : int
        How many of the last positions are memory; set before every forward pass, 0 for none.
    """

    def __init__(self, stock: nn.Linear, heads: int, halves: tuple[int, int] | None):
        super().__init__(stock.in_features, stock.out_features, dtype=stock.weight.dtype, device=stock.weight.device)
        self.memory = nn.Linear(
            stock.in_features, stock.out_features, dtype=stock.weight.dtype, device=stock.weight.device
        )
        self.heads, self.halves, self.slots = heads, halves, 0

    def forward(self, source: Tensor) -> Tensor:
        """Project (batch, tokens + slots, width); with `halves`, to heads of twice the width."""
        tokens = source.shape[1] - self.slots  # x[:, :-0] would be empty
        parts = [super().forward(source[:, :tokens]), self.memory(source[:, tokens:])]
        if self.halves is not None:
            parts = [self._half(part, half) for part, half in zip(parts, self.halves, strict=True)]
        return torch.cat(parts, dim=1)

    def _half(self, projected: Tensor, half: int) -> Tensor:
        """Put each head's values into one half of a head of twice the width; zeros in the other."""
        batch, length, width = projected.shape
        head = width // self.heads
        wide = projected.new_zeros(batch, length, self.heads, 2 * head)
        wide[..., half * head : (half + 1) * head] = projected.view(batch, length, self.heads, head)
        return wide.view(batch, length, 2 * width)


class MemoryQuery(nn.Linear):
    """A query projection that gives both queries, those to encoder tokens and those to slots, head by head."""

    def __init__(self, stock: nn.Linear, heads: int):
        super().__init__(stock.in_features, stock.out_features, dtype=stock.weight.dtype, device=stock.weight.device)
        self.memory = nn.Linear(
            stock.in_features, stock.out_features, dtype=stock.weight.dtype, device=stock.weight.device
        )
        self.heads = heads

    def forward(self, target: Tensor) -> Tensor:
        """Project (batch, tokens, width) to (batch, tokens, 2 width)."""
        batch, length, width = target.shape
        shape = (batch, length, self.heads, width // self.heads)
        both = super().forward(target).view(shape), self.memory(target).view(shape)
        return torch.cat(both, dim=-1).view(batch, length, 2 * width)


class MemoryOutput(nn.Linear):
    """The output projection behind heads of twice the width, whose second half is zero."""

    def __init__(self, stock: nn.Linear, heads: int):
        super().__init__(stock.in_features, stock.out_features, dtype=stock.weight.dtype, device=stock.weight.device)
        self.heads = heads

    def forward(self, attended: Tensor) -> Tensor:
        """Project (batch, tokens, 2 width) to (batch, tokens, width)."""
        batch, length, width = attended.shape
        heads = attended.view(batch, length, self.heads, width // self.heads)
        return super().forward(heads[..., : heads.shape[-1] // 2].reshape(batch, length, width // 2))


def add_memory(attention: BartAttention, query: str) -> None:
    """Give a cross-attention weights for memory slots; those that it has must be loaded or copied afterwards.

    Parameters
    ----------
    attention : BartAttention
        A decoder layer's `encoder_attn`.
    query : {"own", "shared"}
        Whether slots are asked with a query of their own (released code) or with the tokens' (paper, eq. 2).
    """
    heads, own = attention.num_heads, query == "own"
    attention.k_proj = MemoryProjection(attention.k_proj, heads, (0, 1) if own else None)
    # Values have no second half of their own: both kinds are summed in one softmax.
    attention.v_proj = MemoryProjection(attention.v_proj, heads, (0, 0) if own else None)
    if own:
        attention.q_proj = MemoryQuery(attention.q_proj, heads)
        attention.out_proj = MemoryOutput(attention.out_proj, heads)
        # `scaling` was set from the width of a head before, and stays.
        attention.head_dim *= 2


@torch.no_grad()
def copy_to_memory(attention: BartAttention) -> None:
    """Start the memory's weights as copies of those for encoder tokens."""
    for projection in (attention.q_proj, attention.k_proj, attention.v_proj):
        if hasattr(projection, "memory"):
            projection.memory.weight.copy_(projection.weight)
            projection.memory.bias.copy_(projection.bias)


def set_slots(attention: BartAttention, slots: int) -> None:
    """Say how many of the source's last positions are memory."""
    attention.k_proj.slots = attention.v_proj.slots = slots
