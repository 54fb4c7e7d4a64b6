"""The two STEPS tasks with a language model: `score_choices` and `classify`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from lib.data.steps import MultiChoice, NextStep
from lib.steps.prompts import ANSWERS, CONTENT_FREE, demonstrated, question
from lib.steps.scoring import Query, begin_ids, encode, score, window

#: Rules of choice; higher is better. The first is the paper's.
RULES = {
    "query_perplexity": "mean log-likelihood a token of previous steps and option together (the paper)",
    "option_sum": "log-likelihood of the option given the previous steps",
    "option_mean": "the same a token of the option",
    "option_per_character": "the same a character of the option, its space counted",
}


@dataclass(frozen=True)
class Choices:
    """Scores of both options under every rule, (rows, 2) arrays, higher is better; and what was lost.

    Attributes
    ----------
    scores : dict
        Rule -> array; columns are the options as the rows have them.
    cut : int
        Rows whose previous steps were cut on the left; the same for both options.
    merged : int
        Options of which a token reaches across the boundary to the previous steps.
    """

    scores: dict[str, np.ndarray]
    cut: int
    merged: int


@dataclass(frozen=True)
class Classified:
    """Log-odds of Yes against No, and what was lost.

    Attributes
    ----------
    log_odds : (rows,) array
        log P(Yes) - log P(No); above 0 is Yes.
    content_free : float
        The same for a question without content: the model's taste for Yes. Subtract it for the calibrated answer (Zhao
        et al., 2021; not in the paper).
    cut, merged : int
        Rows whose steps were cut on the left, and answers of which a token reaches across the boundary.
    """

    log_odds: np.ndarray
    content_free: float
    cut: int
    merged: int


def choices(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    rows: Sequence[MultiChoice],
    begin: str = "auto",
    batch_tokens: int = 2048,
) -> Choices:
    """Return the scores of both options of every row under every rule of `RULES`.

    Parameters
    ----------
    model, tokenizer
        Decoder-only, see `lib.models.load_causal`.
    rows : sequence of MultiChoice
    begin : {"auto", "yes", "no"}
        Whether a begin token stands first, see `begin_ids`.
    batch_tokens : int
        Does not change the scores.

    Raises
    ------
    ValueError
        If both options of a row are equal: names its line.
    """
    for row in rows:
        if row.options[0] == row.options[1]:
            raise ValueError(f"line {row.line}: both options are {row.options[0]!r}; drop the row")
    first = begin_ids(tokenizer, begin)
    encoded = [encode(tokenizer, row.previous, f" {option}", first) for row in rows for option in row.options]
    queries = _same_cut([query for query, _ in encoded], model)
    found = score(model, queries, batch_tokens=batch_tokens)
    lost = [len(query.context) - len(kept.context) for (query, _), kept in zip(encoded, queries, strict=True)]
    lengths = [len(option) + 1 for row in rows for option in row.options]
    ways = {
        "query_perplexity": [one.mean for one in found],
        "option_sum": [one.continuation.sum() for one in found],
        "option_mean": [one.continuation.mean() for one in found],
        "option_per_character": [one.continuation.sum() / n for one, n in zip(found, lengths, strict=True)],
    }
    scores = {rule: np.array(values, dtype=float).reshape(-1, 2) for rule, values in ways.items()}
    return Choices(scores, sum(cut > 0 for cut in lost[::2]), sum(merged for _, merged in encoded))


def score_choices(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    rows: Sequence[MultiChoice],
    rule: str = "query_perplexity",
    begin: str = "auto",
) -> np.ndarray:
    """Return the scores of both options of every row, (rows, 2), higher is better; see `choices` and `RULES`."""
    if rule not in RULES:
        raise ValueError(f"rule={rule!r}: expected one of {', '.join(RULES)}")
    return choices(model, tokenizer, rows, begin).scores[rule]


def classify(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    rows: Sequence[NextStep],
    demonstrations: Sequence[NextStep] = (),
    begin: str = "auto",
    batch_tokens: int = 2048,
) -> np.ndarray:
    """Return log P(Yes) - log P(No) of every row, (rows,); see `classify_fully`."""
    return classify_fully(model, tokenizer, rows, demonstrations, begin, batch_tokens).log_odds


def classify_fully(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    rows: Sequence[NextStep],
    demonstrations: Sequence[NextStep] = (),
    begin: str = "auto",
    batch_tokens: int = 2048,
) -> Classified:
    """Return log-odds of Yes against No for every row, with what was lost.

    Parameters
    ----------
    model, tokenizer
        Decoder-only, see `lib.models.load_causal`.
    rows : sequence of NextStep
    demonstrations : sequence of NextStep
        Stand with their answers before every question, and are encoded once.
    begin, batch_tokens
        See `choices`.

    Notes
    -----
    Answers are whole strings, ` Yes` and ` No`, however many tokens they have.
    """
    before = demonstrated(demonstrations)
    parts = [*((row.previous, row.candidate) for row in rows), CONTENT_FREE]
    asked = [_asked(tokenizer, before, *part, answer) for part in parts for answer in ANSWERS]
    shared = _common([query.context for query, _, _ in asked], len(_ids(tokenizer, before)))
    queries = [replace(query, context=query.context[len(shared) :]) for query, _, _ in asked]
    found = score(model, queries, (*begin_ids(tokenizer, begin), *shared), batch_tokens)
    sums = [one.continuation[-tokens:].sum() for one, (_, tokens, _) in zip(found, asked, strict=True)]
    odds = np.subtract(*np.array(sums).reshape(-1, 2).T)
    cut = sum(one.cut > 0 for one in found[:-2:2])
    return Classified(odds[:-1], float(odds[-1]), cut, sum(merged for _, _, merged in asked[:-2]))


def _asked(
    tokenizer: PreTrainedTokenizerBase, before: str, previous: str, candidate: str, answer: str
) -> tuple[Query, int, bool]:
    """Return a query whose context ends with the previous steps, which rows share; the tokens of its answer; merged.

    The whole text is tokenized at once, as it would be without anything shared: a gap between two demonstrations may
    be other tokens than a gap at the end of a text.
    """
    whole, merged = encode(tokenizer, before + question(previous, candidate), answer)
    steps, _ = encode(tokenizer, before + previous, question(previous, candidate)[len(previous) :])
    ids, place = (*whole.context, *whole.continuation), len(steps.context)
    return Query(ids[:place], ids[place:]), len(whole.continuation), merged


def _common(contexts: Sequence[tuple[int, ...]], longest: int) -> tuple[int, ...]:
    """Return the ids with which all contexts begin, at most `longest`."""
    low, high = min(contexts), max(contexts)
    same = next((at for at, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), min(len(low), len(high)))
    return low[: min(same, longest)]


def _ids(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """Return the ids of a text, without special tokens."""
    return tokenizer(text, add_special_tokens=False).input_ids


def _same_cut(queries: Sequence[Query], model: PreTrainedModel) -> list[Query]:
    """Return queries in pairs with the same context, short enough for the longer option."""
    kept = []
    for one, two in zip(queries[::2], queries[1::2], strict=True):
        room = window(model) - max(len(one.continuation), len(two.continuation))
        over = max(0, max(len(one.context), len(two.context)) - room)
        kept += [replace(query, context=query.context[over:]) for query in (one, two)]
    return kept
