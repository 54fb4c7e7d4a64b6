"""Prompts to generated text: `generate` decodes in length-sorted batches, with every setting explicit."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from tqdm import tqdm
from transformers import BatchEncoding, GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from lib.memory import MemoryBank
from lib.repetition import NoRepeatedChange


@dataclass(frozen=True)
class Decoding:
    """How to decode.

    Attributes
    ----------
    beams : int
        4 in the paper; 1 with `top_p` or `top_k` samples.
    length_penalty : float
        Of beam search: above 0, longer outputs are preferred (the paper's Figure 6 has 0.2, 1.0 and 2.0).
    top_p, top_k : float, int
        Sample from the nucleus or the k best tokens; 0 for no sampling.
    no_repeat_ngram_size : int
        Forbid a second n-gram of this length; 0 in the paper. Small models loop in beam search without it.
    no_repeated_change : bool
        A rule of ours: forbid a state change that the output already holds, see `lib.repetition`.
    max_new_tokens : int
        Bound of an output; outputs that reach it are counted as truncated.
    max_input : int
        Input tokens; longer inputs are cut from the left and counted.
    batch_size : int
        Does not change the output.
    """

    beams: int = 4
    length_penalty: float = 1.0
    top_p: float = 0.0
    top_k: int = 0
    no_repeat_ngram_size: int = 0
    no_repeated_change: bool = False
    max_new_tokens: int = 400
    max_input: int = 512
    batch_size: int = 16


@dataclass(frozen=True)
class Output:
    """One generated text, its tokens, and whether it or its input was cut."""

    text: str
    tokens: int
    truncated: bool
    input_truncated: bool


def generate(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[str],
    decoding: Decoding,
    seed: int = 0,
    device: str = "",
    progress: bool | None = None,
    memory: tuple[MemoryBank, Sequence[int]] | None = None,
) -> list[Output]:
    """Return one output a prompt, in the prompts' order, decoded in batches of similar length.

    `memory` is, for a `MemoryBart`, a bank and each prompt's place in it. A decoder-only model reads its prompt padded
    on the left, so that every row ends where its output begins.
    """
    causal = not model.config.is_encoder_decoder
    lengths = [len(ids) for ids in tokenizer(list(prompts), add_special_tokens=not causal).input_ids]
    order = sorted(range(len(prompts)), key=lambda index: -lengths[index])
    device = device or model.device
    model = model.to(device).eval()
    config = generation_config(model, decoding)
    torch.manual_seed(seed)
    outputs: dict[int, Output] = {}
    batches = [order[start : start + decoding.batch_size] for start in range(0, len(order), decoding.batch_size)]
    # disable=None shows the bar in a terminal only.
    for batch in tqdm(batches, desc="decoding", unit="batch", disable=None if progress is None else not progress):
        encoded = encode_prompts(tokenizer, [prompts[index] for index in batch], decoding.max_input, causal).to(device)
        slots = {}
        if memory is not None:
            bank, places = memory
            slots = dict(zip(("memory", "memory_mask"), bank.padded([places[index] for index in batch]), strict=True))
        start = encoded.input_ids.shape[1] if causal else 1
        with torch.inference_mode():
            generated = model.generate(
                input_ids=encoded.input_ids,
                attention_mask=encoded.attention_mask,
                **slots,
                generation_config=config,
                logits_processor=[NoRepeatedChange(tokenizer, start)] if decoding.no_repeated_change else None,
            )
        for index, ids in zip(batch, generated.tolist(), strict=True):
            outputs[index] = _output(tokenizer, ids[start:], lengths[index] > decoding.max_input)
    return [outputs[index] for index in range(len(prompts))]


def encode_prompts(
    tokenizer: PreTrainedTokenizerBase, prompts: list[str], max_input: int, causal: bool
) -> BatchEncoding:
    """Return padded ids and mask of prompts, cut from the left.

    A decoder-only model is trained on prompt and answer in one sequence, without special tokens between them.
    """
    return tokenizer(
        prompts, truncation=True, max_length=max_input, padding=True, return_tensors="pt",
        padding_side="left" if causal else "right", add_special_tokens=not causal,
    )  # fmt: skip


def generation_config(model: PreTrainedModel, decoding: Decoding) -> GenerationConfig:
    """Return the settings of `generate`, with everything explicit that a checkpoint might set by itself."""
    sampling = bool(decoding.top_p or decoding.top_k)
    if sampling and decoding.beams != 1:
        raise ValueError(f"beams={decoding.beams} with sampling: use beams=1, or top_p=0 and top_k=0")
    own = model.generation_config
    return GenerationConfig(
        decoder_start_token_id=own.decoder_start_token_id,
        bos_token_id=own.bos_token_id,
        eos_token_id=own.eos_token_id,
        pad_token_id=own.pad_token_id,
        num_beams=decoding.beams,
        length_penalty=decoding.length_penalty if decoding.beams > 1 else None,
        early_stopping=False if decoding.beams > 1 else None,
        do_sample=sampling,
        top_p=(decoding.top_p or 1.0) if sampling else None,
        top_k=decoding.top_k if sampling else None,
        no_repeat_ngram_size=decoding.no_repeat_ngram_size,
        max_new_tokens=decoding.max_new_tokens,
    )


def _output(tokenizer: PreTrainedTokenizerBase, ids: list[int], input_truncated: bool) -> Output:
    """Return the text of one row of generated ids, without the start token."""
    end, pad = tokenizer.eos_token_id, tokenizer.pad_token_id
    ended = end in ids
    kept = ids[: ids.index(end)] if ended else [token for token in ids if token != pad]
    return Output(to_text(tokenizer, kept), len(kept) + ended, not ended, input_truncated)


def to_text(tokenizer: PreTrainedTokenizerBase, ids: list[int]) -> str:
    """Return the text of token ids, with the spaces undone that WordPiece puts around punctuation inside words.

    Of the gold sentences, 1.4% would change under the metric's normalisation with the library's clean-up alone
    (`non - stick`), 0.2% do with this.
    """
    # Set explicitly, since its default changed between versions; a byte-level tokenizer keeps its spaces itself.
    pieces = tokenizer.backend_tokenizer.model.__class__.__name__ == "WordPiece"
    text = tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=pieces).strip()
    if pieces:
        text = re.sub(r"(?<=\w) ([-/]) (?=\w)", r"\1", text)
        text = re.sub(r"(?<=\d)([.,]) (?=\d)", r"\1", text)
    return text
