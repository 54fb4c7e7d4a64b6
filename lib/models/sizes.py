"""Parameter counts of the paper's models, counted on the meta device: no weights are loaded or made."""

import torch
from transformers import BartConfig, BartForConditionalGeneration, GPT2Config, GPT2LMHeadModel


def paper_sizes() -> dict[str, float]:
    """Return millions of parameters by row of the OpenPI-C paper's appendix C, tied weights counted once.

    GPT-2 is gpt2-medium (24 layers of width 1024); BART is bart-large (the configuration's own defaults: 12 + 12
    layers of width 1024), and BART + ECond is the same model asked about one entity at a time.
    """
    with torch.device("meta"):
        gpt2 = GPT2LMHeadModel(GPT2Config(n_embd=1024, n_layer=24, n_head=16))
        bart = BartForConditionalGeneration(BartConfig())
    large = bart.num_parameters() / 1e6
    return {"GPT-2": gpt2.num_parameters() / 1e6, "BART": large, "BART + ECond": large}
