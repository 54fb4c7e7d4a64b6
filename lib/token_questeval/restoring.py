"""Before the training: the encoder restores masked words, then a fresh BART's decoder hands them through, `warm_up`.

Ours, not in the released system, whose T5 fills masks already. A BART that starts from a sentence encoder gets one
word of signal an example, through a decoder that has never looked at an input: in a trial it filled no held-out mask
right after 750 updates. Two remedies, and it takes both: many words are masked at once and a word is read off the
encoder's state at its mask through the output embeddings, with the other text beside (translation language modelling,
Lample and Conneau, 2019); then the decoder's layers hand through the encoder states that they attend to, unchanged, so
that all it has left to learn is to look at the mask.
"""

import os
import random
from collections.abc import Sequence
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy
from transformers import BartForConditionalGeneration, PreTrainedModel, PreTrainedTokenizerBase

from lib.encoding import IGNORED
from lib.token_questeval.masking import MASK, SEPARATOR, plain
from lib.token_questeval.pairs import Pair
from lib.training import Settings, as_record, fit

SHARE = 0.2  # of words that are masked
MAX_WORDS = 30  # of either text; shorter ones teach as much an example and cost less
MAX_TOKENS = 256  # of both
BATCH = 32
DEV_ROWS = 128


def warm_up(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    learned: Sequence[Pair],
    held_out: Sequence[Pair],
    folder: Path,
    updates: int,
    precision: str = "auto",
    seed: int = 0,
) -> dict | None:
    """Train the encoder and the embeddings in place; then open the decoder of a BART that was made here.

    A loaded model and another kind keep their decoder; see `open_decoder`.

    Parameters
    ----------
    model, tokenizer
        After `prepare`.
    learned, held_out : sequences of (str, str)
        Pairs to learn from, and pairs that choose the checkpoint.
    folder : Path
        For checkpoints; a stopped warm-up goes on from the last one.
    updates : int
        Of 32 pairs each; 0 leaves the model as it is.
    precision, seed
        See `lib.training.Settings`.

    Returns
    -------
    dict or None
        What `metrics.json` keeps of it; None with 0 updates.

    Raises
    ------
    ValueError
        If no pair to learn from, or none held out, has 1 to 30 words on both sides.
    """
    if not updates:
        return None
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ValueError(
            f"restore_updates={updates} trains an encoder without its decoder, which several processes cannot share: "
            "start one, or set it to 0"
        )
    train, dev = (restoring_rows(tokenizer, pairs, seed + n) for n, pairs in enumerate((learned, held_out)))
    if not train or not dev:
        raise ValueError(
            f"restore_updates={updates} learns from pairs of 1 to {MAX_WORDS} words: {len(train)} of "
            f"{len(learned)} pairs to learn from and {len(dev)} of {len(held_out)} held out are; set it to 0"
        )
    settings = Settings(
        5.0e-4, BATCH, updates=updates, warmup_updates=min(50, updates // 8), evaluate_every=max(1, updates // 4),
        precision=precision, seed=seed,
    )  # fmt: skip
    record = as_record(fit(model, tokenizer, train, dev[:DEV_ROWS], folder, settings, loss=_loss))
    if isinstance(model, BartForConditionalGeneration) and not model.name_or_path:
        open_decoder(model)
    return record


@torch.no_grad()
def open_decoder(model: BartForConditionalGeneration) -> None:
    """Overwrite the decoder's layers so that what they attend to in the encoder's states goes through unchanged.

    Values and output of the cross-attention become the identity, self-attention and feed-forward add nothing, layer
    norms scale nothing; queries and keys stay. A layer's output is then the layer norm of its input plus the states
    that it attends to: a decoder that looks at one mask says what the encoder restores there.
    """
    for layer in model.model.decoder.layers:
        for projection in (layer.encoder_attn.v_proj, layer.encoder_attn.out_proj):
            torch.nn.init.eye_(projection.weight)
            torch.nn.init.zeros_(projection.bias)
        for silent in (layer.self_attn.out_proj, layer.fc2):
            torch.nn.init.zeros_(silent.weight)
            torch.nn.init.zeros_(silent.bias)
        for norm in (layer.self_attn_layer_norm, layer.encoder_attn_layer_norm, layer.final_layer_norm):
            torch.nn.init.ones_(norm.weight)
            torch.nn.init.zeros_(norm.bias)


def restoring_rows(tokenizer: PreTrainedTokenizerBase, pairs: Sequence[Pair], seed: int = 0) -> list[dict]:
    """Return rows for `lib.training.fit`, both orders of each pair: masked text, `<sep>`, the other text.

    A fifth of the first text's words, by white space and at least one, is masked. Labels lie at the masks: a word's
    first piece, as the decoder will have to say it.
    """
    draw = random.Random(seed)
    texts, answers = [], []
    for pair in pairs:
        if not all(0 < len(text.split()) <= MAX_WORDS for text in pair):
            continue
        plain_pair = tuple(map(plain, pair))
        for first, other in (plain_pair, plain_pair[::-1]):
            words = first.split()
            masked = set(draw.sample(range(len(words)), max(1, round(SHARE * len(words)))))
            left = " ".join(MASK if place in masked else word for place, word in enumerate(words))
            texts.append(f"{left} {SEPARATOR} {other}")
            answers.append([words[place] for place in sorted(masked)])
    if not texts:
        return []
    inputs = tokenizer(texts, truncation=True, max_length=MAX_TOKENS)
    pieces = iter(tokenizer([word for words in answers for word in words], add_special_tokens=False).input_ids)
    firsts = [[(next(pieces) or [IGNORED])[0] for _ in words] for words in answers]
    mask = tokenizer.convert_tokens_to_ids(MASK)
    rows = []
    for ids, attention, first in zip(inputs.input_ids, inputs.attention_mask, firsts, strict=True):
        at_masks = iter(first)
        labels = [next(at_masks) if token == mask else IGNORED for token in ids]
        rows.append({"input_ids": ids, "attention_mask": attention, "labels": labels})
    return rows


def _loss(model: PreTrainedModel, batch: dict, labels_in_update: torch.Tensor | None) -> torch.Tensor:
    """Return the cross entropy at the masks, of encoder states through the output embeddings."""
    encoded = model.get_encoder()(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"])
    at = batch["labels"] != IGNORED
    logits = model.get_output_embeddings()(encoded.last_hidden_state[at])
    total = cross_entropy(logits.float(), batch["labels"][at], reduction="sum")
    return total / (at.sum() if labels_in_update is None else labels_in_update)
