"""Parameter counts of the paper's models, counted on the meta device: no weights are loaded or made."""

import torch
from transformers import BartConfig, BartForConditionalGeneration, GPT2Config, GPT2LMHeadModel

from lib.models.memory_bart import MemoryBart, MemoryBartConfig


def paper_sizes(memory_query: str = "own") -> dict[str, float]:
    """Return millions of parameters by row of the OpenPI-C paper's appendix C, tied weights counted once.

    GPT-2 is gpt2-medium (24 layers of width 1024); BART is bart-large (the configuration's own defaults: 12 + 12
    layers of width 1024); BART + ECond is the same model asked about one entity at a time.

    Parameters
    ----------
    memory_query : {"own", "shared"}
        Of BART + EMem: the paper counts 444M, which is queries of the memory's own; its text shares them (431M).
    """
    with torch.device("meta"):
        models = {
            "GPT-2": GPT2LMHeadModel(GPT2Config(n_embd=1024, n_layer=24, n_head=16)),
            "BART": BartForConditionalGeneration(BartConfig()),
            "BART + EMem": MemoryBart(MemoryBartConfig(memory_query=memory_query)),
        }
    sizes = {row: model.num_parameters() / 1e6 for row, model in models.items()}
    return sizes | {"BART + ECond": sizes["BART"]}
