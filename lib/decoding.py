"""Generated text for every step: `predict` decodes in length-sorted batches and splits what comes out."""

import re
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import torch
from tqdm import tqdm
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from lib.data.examples import step_prompt
from lib.data.procedures import Procedure
from lib.repetition import NoRepeatedChange
from lib.text import StateChange, parse_sentence, split_answer


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
class DecodingReport:
    """What decoding produced and lost.

    Attributes
    ----------
    steps, sentences, distinct : int
        Decoded steps, sentences kept, and distinct sentences within their step.
    inputs_truncated, outputs_truncated : int
        Inputs cut from the left; outputs that reached the bound without an end token.
    fragments_dropped, unparseable, no_change : int
        See `lib.text.SplitReport`, summed over steps.
    tokens : int
        Generated tokens without padding, of the outputs kept.
    wall_time_seconds : float
    """

    steps: int
    sentences: int
    distinct: int
    inputs_truncated: int
    outputs_truncated: int
    fragments_dropped: int
    unparseable: int
    no_change: int
    tokens: int
    wall_time_seconds: float


def predict(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    procedures: Sequence[Procedure],
    decoding: Decoding | None = None,
    preset: str = "released",
    seed: int = 0,
    device: str = "",
    progress: bool | None = None,
    return_report: bool = False,
    goal: bool = True,
    states: bool = False,
) -> list[list[list[str]]] | tuple[list[list[list[str]]], DecodingReport]:
    """Return the predicted sentences of every step: procedure, step, sentences.

    Parameters
    ----------
    model, tokenizer
        From `lib.models`, trained on the prompts of `lib.text.prompt`; either kind.
    procedures : sequence of Procedure
    decoding : Decoding, optional
    preset : {"released", "safe"}
        How the generated text is split, see `lib.text.split_answer`.
    seed : int
        Of sampling; batches depend on it then.
    device : str
        Empty for the device that the model is on.
    progress : bool, optional
        Show a progress bar; default only in a terminal.
    return_report : bool
    goal : bool
        Whether prompts begin with the goal.
    states : bool
        `+ concat states`: past steps are followed by the changes that were predicted for them, so that decoding goes
        in waves: step k of all procedures together, then step k + 1.

    Returns
    -------
    predictions, or (predictions, DecodingReport)
        In the order of the procedures and their steps, whatever the batches were.
    """
    decoding = decoding or Decoding()
    started = time.monotonic()
    outputs: list[list[Output]] = [[] for _ in procedures]
    told: list[list[list[StateChange]]] = [[] for _ in procedures]
    for wave in _waves(procedures) if states else [_all_steps(procedures)]:
        prompts = [
            step_prompt(procedures[place], index, goal, told[place] if states else None) for place, index in wave
        ]
        for (place, _), output in zip(
            wave, generate(model, tokenizer, prompts, decoding, seed, device, progress), strict=True
        ):
            outputs[place].append(output)
            told[place].append(_changes(output.text, preset))
    predictions = [[split_answer(output.text, preset) for output in by_step] for by_step in outputs]
    if not return_report:
        return predictions
    return predictions, _report([output for by_step in outputs for output in by_step], preset, started)


def _all_steps(procedures: Sequence[Procedure]) -> list[tuple[int, int]]:
    """Return place of the procedure and of the step, for every step."""
    return [(place, index) for place, procedure in enumerate(procedures) for index in range(len(procedure.steps))]


def _waves(procedures: Sequence[Procedure]) -> list[list[tuple[int, int]]]:
    """Return the same a wave: step k of all procedures that have one."""
    longest = max((len(procedure.steps) for procedure in procedures), default=0)
    return [[(place, k) for place, p in enumerate(procedures) if k < len(p.steps)] for k in range(longest)]


def _changes(text: str, preset: str) -> list[StateChange]:
    """Return the state changes that can be parsed out of a generated text."""
    parsed = (parse_sentence(sentence, preset) for sentence in split_answer(text, preset))
    return [change for change in parsed if change is not None]


def _report(outputs: "Sequence[Output]", preset: str, started: float) -> DecodingReport:
    """Return what decoding produced and lost."""
    split = [split_answer(output.text, preset, return_report=True) for output in outputs]
    reports = [report for _, report in split]
    return DecodingReport(
        steps=len(outputs),
        sentences=sum(len(sentences) for sentences, _ in split),
        distinct=sum(len(set(sentences)) for sentences, _ in split),
        inputs_truncated=sum(output.input_truncated for output in outputs),
        outputs_truncated=sum(output.truncated for output in outputs),
        fragments_dropped=sum(report.fragments_dropped for report in reports),
        unparseable=sum(report.unparseable for report in reports),
        no_change=sum(report.no_change for report in reports),
        tokens=sum(output.tokens for output in outputs),
        wall_time_seconds=round(time.monotonic() - started, 1),
    )


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
) -> list[Output]:
    """Return one output a prompt, in the prompts' order, decoded in batches of similar length.

    A decoder-only model reads its prompt padded on the left, so that every row ends where its output begins.
    """
    causal = not model.config.is_encoder_decoder
    # A decoder-only model is trained on prompt and answer in one sequence, without special tokens between them.
    reading = {"add_special_tokens": not causal}
    lengths = [len(ids) for ids in tokenizer(list(prompts), **reading).input_ids]
    order = sorted(range(len(prompts)), key=lambda index: -lengths[index])
    device = device or model.device
    model = model.to(device).eval()
    config = generation_config(model, decoding)
    torch.manual_seed(seed)
    outputs: dict[int, Output] = {}
    batches = [order[start : start + decoding.batch_size] for start in range(0, len(order), decoding.batch_size)]
    # disable=None shows the bar in a terminal only.
    for batch in tqdm(batches, desc="decoding", unit="batch", disable=None if progress is None else not progress):
        encoded = tokenizer(
            [prompts[index] for index in batch], truncation=True, max_length=decoding.max_input, padding=True,
            return_tensors="pt", padding_side="left" if causal else "right", **reading,
        ).to(device)  # fmt: skip
        start = encoded.input_ids.shape[1] if causal else 1
        with torch.inference_mode():
            generated = model.generate(
                input_ids=encoded.input_ids,
                attention_mask=encoded.attention_mask,
                generation_config=config,
                logits_processor=[NoRepeatedChange(tokenizer, start)] if decoding.no_repeated_change else None,
            )
        for index, ids in zip(batch, generated.tolist(), strict=True):
            outputs[index] = _output(tokenizer, ids[start:], lengths[index] > decoding.max_input)
    return [outputs[index] for index in range(len(prompts))]


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


def target_bound(rows: Sequence[dict], share: float = 1.0) -> int:
    """Return an output bound from training rows: the number of label tokens that `share` of them do not exceed."""
    lengths = sorted(sum(label >= 0 for label in row["labels"]) for row in rows)
    return lengths[min(len(lengths) - 1, int(share * len(lengths)))]


def as_record(report: DecodingReport) -> dict:
    """Return what `metrics.json` holds of a decoding, with outputs a step."""
    return asdict(report) | {
        "outputs_per_step": report.sentences / report.steps,
        "distinct_per_step": report.distinct / report.steps,
    }


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
