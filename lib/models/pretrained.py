"""Models from a local folder or from the hub; of which kind they are is read from their config."""

from pathlib import Path

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from lib.paths import ROOT


def located(name: str) -> str:
    """Return the path of a folder that is named relative to the project, whatever folder a kernel runs in."""
    return str(ROOT / name) if not Path(name).is_dir() and (ROOT / name).is_dir() else name


def read_config(name: str, revision: str) -> tuple[PretrainedConfig, dict[str, str]]:
    """Return a model's config, and the keywords that pin it for what is loaded next.

    Raises
    ------
    ValueError
        If the name is no folder and comes without a commit.
    """
    name = located(name)
    local = Path(name).is_dir()
    if not local and not revision:
        raise ValueError(
            f"model {name!r} is no local folder; as a hub name it needs its commit, revision=<40 hex digits>"
        )
    pinned = {} if local else {"revision": revision}
    return AutoConfig.from_pretrained(name, **pinned), pinned


def load_pretrained(
    name: str, revision: str, encoder_decoder: bool, device_map: str = ""
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Return a model of the asked kind and its tokenizer: in fp32, or, with a `device_map`, in bf16 where that says.

    Raises
    ------
    ValueError
        If it is of the other kind, naming the loader that takes it.
    """
    name = located(name)
    config, pinned = read_config(name, revision)
    if config.is_encoder_decoder != encoder_decoder:
        other = "load_causal" if encoder_decoder else "load_seq2seq"
        kind = "not an encoder-decoder" if encoder_decoder else "an encoder-decoder"
        raise ValueError(f"{name} is a {config.model_type} model, {kind}: load it with {other}")
    automatic = AutoModelForSeq2SeqLM if encoder_decoder else AutoModelForCausalLM
    how = {"dtype": torch.bfloat16, "device_map": device_map} if device_map else {"dtype": torch.float32}
    model = automatic.from_pretrained(name, **how, **pinned)
    return model, AutoTokenizer.from_pretrained(name, **pinned)
