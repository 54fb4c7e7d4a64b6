"""State changes of every step: `predict` decodes prompts, in waves where the model looks at history, and splits."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from lib.data.examples import step_prompt
from lib.data.procedures import Procedure
from lib.generation import Decoding, Output, encode_prompts, generate
from lib.memory import MemoryBank, read_answer
from lib.models.memory_bart import MemoryBart
from lib.text import StateChange, parse_sentences, split_answer


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
    not_remembered : int
        Sentences kept that a memory or the states of past steps did not take up: they do not have the four parts of
        a state change, or lie beyond the decoder's positions; 0 for a model that looks at no history.
    slots : int
        Memory slots after the last steps, summed over procedures; 0 without a memory.
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
    not_remembered: int
    slots: int
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
    history: str = "predicted",
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
        `+ concat states`: past steps are followed by their changes.
    history : {"predicted", "gold"}
        What those changes are, and what a `MemoryBart` remembers: what the model said itself, or, as an upper bound,
        the gold changes of the procedures given.

    Returns
    -------
    predictions, or (predictions, DecodingReport)
        In the order of the procedures and their steps, whatever the batches were.

    Notes
    -----
    With states or a memory decoding goes in waves: step k of all procedures together, then step k + 1. What a
    memory takes in are the hidden states of one more pass over the parsed changes, put together again as an answer.
    """
    if history not in {"predicted", "gold"}:
        raise ValueError(f"history={history!r}: expected predicted or gold")
    if states and isinstance(model, MemoryBart):
        raise ValueError("a model with entity memory reads past changes from its memory: states must be False")
    decoding = decoding or Decoding()
    model = model.to(device or model.device)
    started = time.monotonic()
    outputs: list[list[Output]] = [[] for _ in procedures]
    told: list[list[list[StateChange]]] = [[] for _ in procedures]
    memory = _Memory(model, tokenizer, len(procedures), decoding) if isinstance(model, MemoryBart) else None
    sequential = states or memory is not None
    for wave in _waves(procedures) if sequential else [_all_steps(procedures)]:
        places = [place for place, _ in wave]
        prompts = [
            step_prompt(procedures[place], index, goal, told[place] if states else None) for place, index in wave
        ]
        slots = None if memory is None else (memory.bank, places)
        decoded = generate(model, tokenizer, prompts, decoding, seed, device, progress, slots)
        for (place, index), output in zip(wave, decoded, strict=True):
            outputs[place].append(output)
            said = parse_sentences(split_answer(output.text, preset), preset)
            told[place].append(said if history == "predicted" else list(procedures[place].steps[index].changes))
        if memory is not None:
            memory.remember(places, prompts, [told[place][-1] for place in places])
    predictions = [[split_answer(output.text, preset) for output in by_step] for by_step in outputs]
    if not return_report:
        return predictions
    report = _report([output for by_step in outputs for output in by_step], preset, started)
    if sequential and history == "predicted":
        parsed = sum(len(changes) for by_step in told for changes in by_step)
        report = replace(report, not_remembered=report.sentences - parsed)
    if memory is not None:
        slots = sum(map(len, memory.bank.pairs))
        report = replace(report, not_remembered=report.not_remembered + memory.changes_cut, slots=slots)
    return predictions, report


class _Memory:
    """What a model remembers while it decodes."""

    def __init__(self, model: MemoryBart, tokenizer: PreTrainedTokenizerBase, procedures: int, decoding: Decoding):
        self.model, self.tokenizer, self.decoding = model, tokenizer, decoding
        self.bank: MemoryBank = model.new_bank(procedures)
        self.changes_cut = 0

    @torch.inference_mode()
    def remember(self, places: Sequence[int], prompts: Sequence[str], changes: Sequence[Sequence[StateChange]]) -> None:
        """Read a step's changes once more and take them into memory, in batches of similar length."""
        bound = self.model.config.max_position_embeddings
        answers = [read_answer(self.tokenizer, some, bound) for some in changes]
        self.changes_cut += sum(answer.changes_cut for answer in answers)
        order = sorted((i for i, a in enumerate(answers) if a.mentions), key=lambda i: -len(answers[i].ids))
        for start in range(0, len(order), self.decoding.batch_size):
            batch = order[start : start + self.decoding.batch_size]
            rows = [places[at] for at in batch]
            encoded = encode_prompts(self.tokenizer, [prompts[at] for at in batch], self.decoding.max_input, False)
            encoded = encoded.to(self.model.device)
            labels = [torch.tensor(answers[at].ids, device=self.model.device) for at in batch]
            hidden = self.model.hidden_states(
                self.model.model.encoder(encoded.input_ids, attention_mask=encoded.attention_mask)[0],
                encoded.attention_mask,
                torch.nn.utils.rnn.pad_sequence(labels, batch_first=True, padding_value=self.tokenizer.pad_token_id),
                *self.bank.padded(rows),
            )
            self.model.remember(self.bank, rows, hidden, [answers[at].mentions for at in batch])


def _all_steps(procedures: Sequence[Procedure]) -> list[tuple[int, int]]:
    """Return place of the procedure and of the step, for every step."""
    return [(place, index) for place, procedure in enumerate(procedures) for index in range(len(procedure.steps))]


def _waves(procedures: Sequence[Procedure]) -> list[list[tuple[int, int]]]:
    """Return the same a wave: step k of all procedures that have one."""
    longest = max((len(procedure.steps) for procedure in procedures), default=0)
    return [[(place, k) for place, p in enumerate(procedures) if k < len(p.steps)] for k in range(longest)]


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
        not_remembered=0,
        slots=0,
        tokens=sum(output.tokens for output in outputs),
        wall_time_seconds=round(time.monotonic() - started, 1),
    )


def target_bound(rows: Sequence[dict], share: float = 1.0) -> int:
    """Return an output bound from training rows: the number of label tokens that `share` of them do not exceed."""
    lengths = sorted(sum(label >= 0 for label in row["labels"]) for row in rows)
    return lengths[min(len(lengths) - 1, int(share * len(lengths)))]


def with_predictions(
    procedures: Sequence[Procedure], predictions: Sequence[Sequence[Sequence[str]]], preset: str = "released"
) -> list[Procedure]:
    """Return the procedures with the changes that were predicted, as far as they can be parsed."""
    return [
        replace(
            procedure,
            steps=tuple(
                replace(step, changes=tuple(parse_sentences(sentences, preset)))
                for step, sentences in zip(procedure.steps, by_step, strict=True)
            ),
        )
        for procedure, by_step in zip(procedures, predictions, strict=True)
    ]


def as_record(report: DecodingReport) -> dict:
    """Return what `metrics.json` holds of a decoding, with outputs a step."""
    return asdict(report) | {
        "outputs_per_step": report.sentences / report.steps,
        "distinct_per_step": report.distinct / report.steps,
    }
