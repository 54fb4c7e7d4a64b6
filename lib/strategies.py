"""One trained model decoded in several ways: the paper's Table 4 and Figure 6, and rules against repetition.

Weights are not kept, so all of this happens inside the run that trains.
"""

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from lib.data import Procedure, ScoredFile, StateChange
from lib.data.examples import step_examples
from lib.generation import Decoding, generate
from lib.metrics import EmbeddingClusterer
from lib.metrics.match import match_matrix
from lib.metrics.report import six_f1s
from lib.text import parse_sentence, split_answer, to_sentence

#: Table 4's columns. The paper's tables forbid no repetition.
STRATEGIES: Mapping[str, dict] = {
    "top-p 0.9": {"beams": 1, "top_p": 0.9},
    "top-p 0.5": {"beams": 1, "top_p": 0.5},
    "top-k 10": {"beams": 1, "top_k": 10},
    "top-k 5": {"beams": 1, "top_k": 5},
    "beam 4": {"beams": 4},
}
PLAIN = {"no_repeat_ngram_size": 0, "no_repeated_change": False}
#: Ways to say the same once more, for `duplicated`.
REWORDINGS = ("the {}", "this {}", "that {}", "the same {}", "our {}", "the said {}", "your {}")


@dataclass(frozen=True)
class Decoded:
    """What one way of decoding gave: predictions by step id, generated tokens a step, and wall time."""

    predictions: ScoredFile
    tokens_per_step: float
    seconds: float


class StepDecoder:
    """Decodes the same steps in different ways.

    Parameters
    ----------
    model, tokenizer
        A trained model.
    procedures : sequence of Procedure
    number : int
        How many of their steps to take, drawn with `seed`; 0 for all.
    goal, states : bool
        See `lib.data.examples.step_examples`. With states, steps can be chosen but not decoded: a step alone lacks
        what was predicted before it.
    """

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, procedures: Sequence[Procedure],
        number: int = 0, seed: int = 0, goal: bool = True, states: bool = False,
    ):  # fmt: skip
        self.model, self.tokenizer, self.states = model, tokenizer, states
        examples = step_examples(procedures, goal)
        if 0 < number < len(examples):
            chosen = sorted(random.Random(seed).sample(range(len(examples)), number))
            examples = [examples[index] for index in chosen]
        self.examples = examples
        self._done: dict[tuple[Decoding, int], Decoded] = {}

    def __call__(self, decoding: Decoding, seed: int = 0) -> Decoded:
        """Return what one way of decoding gives; the same way again is not decoded again."""
        if self.states:
            raise ValueError("a model with concat states decodes whole procedures: use lib.decoding.predict")
        if (decoding, seed) not in self._done:
            started = time.monotonic()
            prompts = [example.prompt for example in self.examples]
            outputs = generate(self.model, self.tokenizer, prompts, decoding, seed)
            sentences = {e.id: split_answer(o.text) for e, o in zip(self.examples, outputs, strict=True)}
            tokens = sum(output.tokens for output in outputs) / len(outputs)
            self._done[decoding, seed] = Decoded(ScoredFile(sentences), tokens, round(time.monotonic() - started, 1))
        return self._done[decoding, seed]

    def of(self, file: ScoredFile) -> ScoredFile:
        """Return the part of predictions or references that belongs to these steps."""
        ids = [example.id for example in self.examples]
        clusters = file.clusters and {name: file.clusters[name] for name in ids}
        return ScoredFile({name: file.sentences[name] for name in ids}, clusters)


def compare(
    decoder: StepDecoder,
    ways: Mapping[str, Decoding],
    references: ScoredFile,
    data: str,
    clusterer: EmbeddingClusterer,
    seeds: int = 3,
) -> pd.DataFrame:
    """Return a row for each way and seed; a way that samples nothing has one seed.

    Returns
    -------
    DataFrame
        `way`, `seed`, precision, recall and F1 of all six scores in [0, 1] (`cluster_bleu_f1`), `outputs_per_step`,
        `distinct_per_step`, `tokens_per_step`, `seconds`.
    """
    gold, rows = decoder.of(references), []
    for way, decoding in ways.items():
        for seed in range(seeds if decoding.top_p or decoding.top_k else 1):
            found = decoder(decoding, seed)
            steps = list(found.predictions.sentences.values())
            row = {"way": way, "seed": seed}
            for name, score in six_f1s(found.predictions, gold, data, clusterer).items():
                row |= {f"{name}_{part}": getattr(score, part) for part in ("precision", "recall", "f1")}
            row["outputs_per_step"] = sum(map(len, steps)) / len(steps)
            row["distinct_per_step"] = sum(len(set(step)) for step in steps) / len(steps)
            rows.append(row | {"tokens_per_step": found.tokens_per_step, "seconds": found.seconds})
    return pd.DataFrame(rows)


def study(
    decoder: StepDecoder,
    decoding: Decoding,
    references: ScoredFile,
    data: str,
    clusterer: EmbeddingClusterer,
    seeds: int = 3,
    penalties: str = "0.2,1.0,2.0",
) -> dict[str, pd.DataFrame]:
    """Return `compare` for the strategies of Table 4, the length penalties of Figure 6, and the repetition rules."""
    ways = {
        "strategies": strategies(decoding),
        "length_penalties": length_penalties(decoding, penalties),
        "repetition_rules": repetition_rules(decoding),
    }
    return {name: compare(decoder, chosen, references, data, clusterer, seeds) for name, chosen in ways.items()}


def strategies(decoding: Decoding) -> dict[str, Decoding]:
    """Return the five of Table 4, without any rule against repetition, and the run's own decoding."""
    five = {name: replace(decoding, **PLAIN, **change) for name, change in STRATEGIES.items()}
    return five | {"as chosen on dev": decoding}


def length_penalties(decoding: Decoding, penalties: str) -> dict[str, Decoding]:
    """Return the run's decoding with each length penalty of a list like `0.2,1.0,2.0`: Figure 6."""
    return {value.strip(): replace(decoding, length_penalty=float(value)) for value in penalties.split(",")}


def repetition_rules(decoding: Decoding, ngram: int = 6) -> dict[str, Decoding]:
    """Return no rule, n-gram blocking (the run's own size, or `ngram`), and our rule on whole changes."""
    size = decoding.no_repeat_ngram_size or ngram
    return {
        "none": replace(decoding, **PLAIN),
        f"no {size}-gram twice": replace(decoding, **PLAIN | {"no_repeat_ngram_size": size}),
        "no change twice (ours)": replace(decoding, **PLAIN | {"no_repeated_change": True}),
    }


def summary(compared: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Return the mean over seeds of some columns, a row a way, with the standard deviation where there are several.

    F1s are in percent. A mean stands alone for one seed, and as `12.3 ± 0.4` else.
    """
    grouped = compared.groupby("way", sort=False)
    frame = pd.DataFrame({"seeds": grouped.size()})
    for column in columns:
        scale = 100 if column.endswith("_f1") else 1
        spread = (scale * grouped[column].std()).map(lambda sd: "" if pd.isna(sd) else f" ± {sd:.1f}")
        frame[column] = (scale * grouped[column].mean()).map("{:.1f}".format) + spread
    return frame


def repetition_curve(
    predictions: ScoredFile, references: ScoredFile, data: str, clusterer: EmbeddingClusterer, largest: int = 6
) -> pd.DataFrame:
    """Return both F1s when predictions are said again in other words: how much a metric likes repetition.

    Returns
    -------
    DataFrame
        `repeated` (`every prediction`, or `the best one` of each step, which a model cannot know), `times` from 1,
        `original` and `cluster` ROUGE-L F1 in [0, 1].
    """
    ids = list(predictions.sentences)
    clusters = references.clusters and {name: references.clusters[name] for name in ids}
    gold = ScoredFile({name: references.sentences[name] for name in ids}, clusters)
    best = {name: _best(sentences, gold.sentences[name]) for name, sentences in predictions.sentences.items()}
    rows = []
    for label, chosen in (("every prediction", predictions.sentences), ("the best one", best)):
        for times in range(1, largest + 1):
            scores = six_f1s(duplicated(predictions, times, chosen), gold, data, clusterer)
            rows.append((label, times, scores["original_rouge_l"].f1, scores["cluster_rouge_l"].f1))
    return pd.DataFrame(rows, columns=["repeated", "times", "original", "cluster"])


def duplicated(predictions: ScoredFile, times: int, chosen: Mapping[str, Sequence[str]] | None = None) -> ScoredFile:
    """Return predictions in which changes are said `times` times, each time in other words.

    Parameters
    ----------
    predictions : ScoredFile
    times : int
        1 leaves them as they are; at most 8.
    chosen : mapping, optional
        Step id -> the sentences that are repeated; default all.
    """
    if not 1 <= times <= len(REWORDINGS) + 1:
        raise ValueError(f"times={times}: expected 1 to {len(REWORDINGS) + 1}")
    chosen = predictions.sentences if chosen is None else chosen
    return ScoredFile(
        {
            name: [*sentences, *(_reworded(s, form) for form in REWORDINGS[: times - 1] for s in chosen[name])]
            for name, sentences in predictions.sentences.items()
        }
    )


def _best(sentences: Sequence[str], gold: Sequence[str]) -> list[str]:
    """Return the sentence that matches a gold one best; nothing where there is none of either."""
    if not sentences or not gold:
        return []
    return [sentences[int(match_matrix(list(gold), list(sentences), "rouge_l").max(axis=0).argmax())]]


def _reworded(sentence: str, form: str) -> str:
    """Return a sentence with its entity said in other words; one without an entity is doubled as it is."""
    change = parse_sentence(sentence)
    if change is None:
        return sentence
    return to_sentence(StateChange(form.format(change.entity), change.attribute, change.before, change.after))
