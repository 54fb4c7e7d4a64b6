"""What is chosen on dev and what is reported on test: `dev_scorer`, `choose_decoding`, `choose_templates`."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pandas as pd
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from lib.baselines import majority_template
from lib.data import Procedure
from lib.decoding import predict
from lib.generation import Decoding
from lib.metrics import openpi_f1

Predictions = list[list[list[str]]]


def dev_scorer(
    tokenizer: PreTrainedTokenizerBase,
    procedures: Sequence[Procedure],
    decoding: Decoding,
    goal: bool = True,
    states: bool = False,
) -> Callable[[PreTrainedModel], float]:
    """Return a function from a model to its original ROUGE-L F1 on dev, decoded greedily: it chooses checkpoints."""
    how = replace(decoding, beams=1, batch_size=4 * decoding.batch_size)
    return lambda model: rouge_f1(
        procedures, predict(model, tokenizer, procedures, how, progress=False, goal=goal, states=states)
    )


def choose_decoding(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    procedures: Sequence[Procedure],
    decoding: Decoding,
    candidates: str,
    goal: bool = True,
    states: bool = False,
) -> tuple[Decoding, pd.DataFrame]:
    """Choose `no_repeat_ngram_size` on dev.

    Parameters
    ----------
    candidates : str
        Sizes joined with commas, `0,6,8`; a single one is taken without decoding anything.
    goal, states : bool
        See `lib.decoding.predict`.

    Returns
    -------
    decoding : Decoding
        With the size of the best original ROUGE-L F1.
    table : DataFrame
        A row a candidate: F1 on dev, outputs and distinct outputs a step; empty for a single candidate.
    """
    sizes = [int(size) for size in candidates.split(",")]
    columns = ["no_repeat_ngram_size", "dev_rouge_l_f1", "outputs_per_step", "distinct_per_step"]
    if len(sizes) == 1:
        return replace(decoding, no_repeat_ngram_size=sizes[0]), pd.DataFrame(columns=columns)
    rows = []
    for size in sizes:
        tried = replace(decoding, no_repeat_ngram_size=size)
        predictions, report = predict(model, tokenizer, procedures, tried, return_report=True, goal=goal, states=states)
        steps = report.steps
        rows.append((size, rouge_f1(procedures, predictions), report.sentences / steps, report.distinct / steps))
    table = pd.DataFrame(rows, columns=columns)
    best = int(table.loc[table.dev_rouge_l_f1.idxmax(), "no_repeat_ngram_size"])
    return replace(decoding, no_repeat_ngram_size=best), table


def choose_templates(
    train: Sequence[Procedure],
    dev: Sequence[Procedure],
    procedures: Sequence[Procedure],
    nouns: Callable[[str], list[str]],
    largest: int = 4,
) -> tuple[Predictions, int]:
    """Return the majority-template baseline's predictions with as many templates a noun as do best on dev."""
    scores = {n: rouge_f1(dev, majority_template(train, dev, nouns, n)) for n in range(1, largest + 1)}
    best = max(scores, key=scores.get)
    return majority_template(train, procedures, nouns, best), best


def rouge_f1(procedures: Sequence[Procedure], predictions: Predictions) -> float:
    """Return the original ROUGE-L F1 of predictions, in [0, 1]."""
    gold = [step.sentences for procedure in procedures for step in procedure.steps]
    return openpi_f1([sentences for by_step in predictions for sentences in by_step], gold).f1
