"""A short denoising of the training texts before the training: `warm_up`.

Ours, in none of the papers: a decoder whose cross-attention starts from another model's self-attention writes fluent
answers to no question in particular for a thousand updates. Restoring masked texts first teaches it to look at its
input (BART's own pretraining task, Lewis et al., 2020): in a trial 400 updates of it saved more than twice as many.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from lib.data import Procedure
from lib.data.examples import Example
from lib.encoding import encode
from lib.text import to_answer
from lib.training import Settings, as_record, fit

SHARE = 0.2  # of words at which a masked span of one to three words begins
CHANGES = 4  # of a step, as one text
MAX_TOKENS = 96  # of a text
DEV_ROWS = 128


def warm_up(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    splits: Mapping[str, Sequence[Procedure]],
    folder: Path,
    updates: int,
    precision: str = "auto",
    seed: int = 0,
) -> dict | None:
    """Train an encoder-decoder in place to restore masked steps and answers of the training split.

    Parameters
    ----------
    splits : mapping
        `train` is learned from, `dev` chooses the checkpoint.
    folder : Path
        For checkpoints; a stopped warm-up goes on from the last one.
    updates : int
        Of 16 texts each; 0 leaves the model as it is.
    precision, seed
        See `lib.training.Settings`.

    Returns
    -------
    dict or None
        What `metrics.json` keeps of it; None with 0 updates.

    Raises
    ------
    ValueError
        If the model is decoder-only: it has no input to restore from.
    """
    if not updates:
        return None
    if not model.config.is_encoder_decoder:
        raise ValueError(
            f"denoise_updates={updates} with a {model.config.model_type} model, which is decoder-only: set it to 0"
        )
    train, dev = (
        encode(tokenizer, list(_examples(splits[split], tokenizer, seed + first, times)), 256, MAX_TOKENS)
        for split, first, times in (("train", 0, 2), ("dev", 1, 1))
    )
    settings = Settings(
        5.0e-4, 16, updates=updates, warmup_updates=min(50, updates // 8), evaluate_every=max(1, updates // 4),
        precision=precision, seed=seed,
    )  # fmt: skip
    return as_record(fit(model, tokenizer, train, dev[:DEV_ROWS], folder, settings))


def noised(text: str, mask: str, draw: random.Random) -> str:
    """Return a text in which spans of one to three words are replaced by one mask each.

    Examples
    --------
    >>> noised("fill a pot with water and wait", "[MASK]", random.Random(3))
    'fill a pot with water [MASK] wait'
    """
    words, kept = text.split(), []
    place = 0
    while place < len(words):
        span = draw.choice((1, 1, 2, 3)) if draw.random() < SHARE else 0
        kept.append(mask if span else words[place])
        place += span or 1
    return " ".join(kept)


def _examples(
    procedures: Sequence[Procedure], tokenizer: PreTrainedTokenizerBase, seed: int, times: int
) -> Iterator[Example]:
    """Yield goal and step, and the step's first changes, noised anew each of `times` times."""
    mask = tokenizer.mask_token or tokenizer.unk_token
    draw = random.Random(seed)
    for _ in range(times):
        for procedure in procedures:
            for step in procedure.steps:
                for text in (f"{procedure.goal}. {step.text}", to_answer(step.changes[:CHANGES])):
                    yield Example("", noised(text, mask, draw), text)
