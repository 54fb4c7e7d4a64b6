"""The models that the papers use, family by family: their configs, and tiny random models of the same kind.

The configs hold the sizes that the hub's configs publish, so that parameters can be counted without network.
"""

from pathlib import Path

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    BartConfig,
    BloomConfig,
    GPT2Config,
    MT5Config,
    OPTConfig,
    PretrainedConfig,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    T5Config,
)

from lib.models.seq2seq import sample_tokenizer, unigram_tokenizer

#: the name on the hub, without its owner -> (config class, sizes that differ from the class's defaults)
PUBLISHED: dict[str, tuple[type[PretrainedConfig], dict[str, object]]] = {
    "bart-large": (BartConfig, {}),
    "t5-base": (T5Config, {"d_model": 768, "d_ff": 3072, "num_layers": 12, "num_heads": 12}),
    "mt5-base": (MT5Config, {"d_model": 768, "d_ff": 2048, "num_layers": 12, "num_heads": 12, "vocab_size": 250112}),
    "gpt2": (GPT2Config, {}),
    "gpt2-medium": (GPT2Config, {"n_embd": 1024, "n_layer": 24, "n_head": 16}),
    "gpt2-large": (GPT2Config, {"n_embd": 1280, "n_layer": 36, "n_head": 20}),
    "gpt2-xl": (GPT2Config, {"n_embd": 1600, "n_layer": 48, "n_head": 25}),
    "opt-1.3b": (OPTConfig, {"hidden_size": 2048, "num_hidden_layers": 24, "num_attention_heads": 32, "ffn_dim": 8192}),
    "opt-13b": (OPTConfig, {"hidden_size": 5120, "num_hidden_layers": 40, "num_attention_heads": 40, "ffn_dim": 20480}),
    "opt-30b": (OPTConfig, {"hidden_size": 7168, "num_hidden_layers": 48, "num_attention_heads": 56, "ffn_dim": 28672}),
    "bloom-3b": (BloomConfig, {"hidden_size": 2560, "n_layer": 30, "n_head": 32}),
    "bloom-7b1": (BloomConfig, {"hidden_size": 4096, "n_layer": 30, "n_head": 32}),
}  # fmt: skip
VOCABULARY = {"bloom": 250880, "opt": 50272}  # where a class's default is not what its models have
TINY: dict[str, dict[str, object]] = {
    "bart": {
        "d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
        "decoder_attention_heads": 2, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64,
    },
    "t5": {"d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 1, "num_heads": 2},
    "mt5": {"d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 1, "num_heads": 2},
    "gpt2": {"n_embd": 32, "n_layer": 1, "n_head": 2},
    "opt": {
        "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "ffn_dim": 64, "word_embed_proj_dim": 32,
    },
    "bloom": {"hidden_size": 32, "n_layer": 1, "n_head": 2},
}  # fmt: skip


def published_config(model: str) -> PretrainedConfig:
    """Return the config of a model of the papers by its name on the hub.

    Raises
    ------
    ValueError
        If the papers use no such model.
    """
    name = model.rpartition("/")[2]
    if name not in PUBLISHED:
        raise ValueError(f"model {model!r} is none of the papers', {', '.join(PUBLISHED)}: add its sizes to PUBLISHED")
    kind, sizes = PUBLISHED[name]
    if kind is OPTConfig:
        sizes = sizes | {"word_embed_proj_dim": sizes["hidden_size"]}
    if kind.model_type in VOCABULARY:
        sizes = {"vocab_size": VOCABULARY[kind.model_type]} | sizes
    return kind(**sizes)


def family(model: str) -> str:
    """Return a model's family, its config's model type: `bart`, `t5`, `mt5`, `gpt2`, `opt` or `bloom`."""
    return published_config(model).model_type


def count_parameters(config: PretrainedConfig) -> int:
    """Return how many parameters a model of this config has, tied weights counted once; nothing is allocated."""
    automatic = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
    with torch.device("meta"):
        count = automatic.from_config(config).num_parameters()
    # mT5's published weights have an output layer of their own; a new model of this class ties it to the embeddings.
    return count + (config.vocab_size * config.d_model if config.model_type == "mt5" else 0)


def save_tiny(family_name: str, folder: Path) -> None:
    """Save a random model of a family with one thin layer, and a tokenizer of the family's kind, into a folder."""
    tokenizer = _tokenizer(family_name)
    kind = next(kind for kind, _ in PUBLISHED.values() if kind.model_type == family_name)
    special = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("pad", "bos", "eos")}
    start = {"bart": tokenizer.eos_token_id, "t5": tokenizer.pad_token_id, "mt5": tokenizer.pad_token_id}
    if family_name in start:
        special |= {"decoder_start_token_id": start[family_name], "forced_eos_token_id": None}
    config = kind(vocab_size=len(tokenizer), **TINY[family_name], **special)
    automatic = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = automatic.from_config(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _tokenizer(family_name: str) -> PreTrainedTokenizerBase:
    """Return a tokenizer with a family's habits.

    BART's begins and ends every text, OPT's only begins it, GPT-2 and BLOOM add nothing and GPT-2 has no pad token;
    T5 and mT5 have unigram pieces and end every text.
    """
    if family_name in {"t5", "mt5"}:
        return unigram_tokenizer()
    tokenizer = sample_tokenizer()
    if family_name == "bart":
        return tokenizer
    from tokenizers import processors

    backend = tokenizer.backend_tokenizer
    if family_name == "opt":
        begin = processors.TemplateProcessing(single="</s> $A", special_tokens=[("</s>", 2)])
        special = {"bos_token": "</s>", "eos_token": "</s>", "unk_token": "</s>", "pad_token": "<pad>"}
    elif family_name == "gpt2":
        begin = processors.ByteLevel(trim_offsets=False)
        special = {"bos_token": "</s>", "eos_token": "</s>", "unk_token": "</s>"}
    else:
        begin = processors.ByteLevel(trim_offsets=False)
        special = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    backend.post_processor = begin
    return PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=1024, **special)
