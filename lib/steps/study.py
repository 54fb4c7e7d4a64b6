"""Both tasks as tables: classification by number of demonstrations and seed, choices by rule; scores of every row."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from lib.data.steps import MultiChoice, NextStep
from lib.intervals import bootstrap_interval
from lib.steps.prompts import demonstrations
from lib.steps.report import classification_report, points
from lib.steps.tasks import RULES, Choices, Classified, classify_fully

#: Rules of decision; the first is the paper's.
DECISIONS = {
    "P(Yes) > P(No)": "as in the paper",
    "calibrated": "less the log-odds of a question without content (Zhao et al., 2021; ours)",
}
NUMBERS = ["sensitivity", "specificity", "g_mean", "accuracy", "yes_rate", "auc"]


@dataclass(frozen=True)
class Asked:
    """Log-odds of all rows after some demonstrations."""

    shots: int
    seed: int
    demonstrations: tuple[NextStep, ...]
    found: Classified


def ask(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    rows: Sequence[NextStep],
    pool: Sequence[NextStep],
    shots: str = "0,1,4",
    seeds: int = 6,
    begin: str = "auto",
    batch_tokens: int = 2048,
) -> list[Asked]:
    """Return the log-odds of all rows for every number of demonstrations and, where there are some, every seed.

    Parameters
    ----------
    pool : sequence of NextStep
        Where demonstrations are drawn from.
    shots : str
        Numbers of demonstrations, separated by commas.
    """
    found = []
    for number in map(int, shots.split(",")):
        for seed in range(seeds if number else 1):
            shown = demonstrations(pool, number, seed, rows)
            said = classify_fully(model, tokenizer, rows, shown, begin, batch_tokens)
            found.append(Asked(number, seed, tuple(shown), said))
    return found


class DevScorer:
    """The geometric mean on some rows, without demonstrations, of a model that is being trained."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, rows: Sequence[NextStep], begin: str, batch_tokens: int):
        self.tokenizer, self.rows, self.how = tokenizer, rows, (begin, batch_tokens)

    def __call__(self, model: PreTrainedModel) -> float:
        """Return it, in [0, 1]."""
        said = classify_fully(model, self.tokenizer, self.rows, (), *self.how).log_odds > 0
        return classification_report([row.label for row in self.rows], said, warn=False).g_mean


def panels(rows: Sequence[NextStep], asked: Sequence[Asked]) -> dict[str, tuple[np.ndarray, list[bool], float]]:
    """Return what `lib.plots.log_odds` draws: the first seed of every number of demonstrations."""
    labels = [row.label for row in rows]
    return {
        f"{one.shots} demonstrations": (one.found.log_odds, labels, one.found.content_free)
        for one in asked
        if one.seed == 0
    }


def classification(rows: Sequence[NextStep], asked: Sequence[Asked]) -> pd.DataFrame:
    """Return a row for each number of demonstrations, seed and rule of decision, numbers in [0, 1].

    Columns: shots, seed, decision, those of `ClassificationReport`, and `auc`, the area under the curve of the
    log-odds, which needs no threshold (NaN where only one class is asked about).
    """
    labels = [row.label for row in rows]
    both = len(set(labels)) == 2
    made = []
    for one in asked:
        auc = roc_auc_score(labels, one.found.log_odds) if both else float("nan")
        for decision, threshold in zip(DECISIONS, (0.0, one.found.content_free), strict=True):
            report = classification_report(labels, one.found.log_odds > threshold, warn=False)
            made.append({"shots": one.shots, "seed": one.seed, "decision": decision, **asdict(report), "auc": auc})
    return pd.DataFrame(made)


def over_seeds(frame: pd.DataFrame) -> pd.DataFrame:
    """Return means in percent by number of demonstrations and decision, with `±` the standard deviation over seeds."""
    groups = frame.groupby(["shots", "decision"], sort=False)[NUMBERS]
    mean, deviation, number = 100 * groups.mean(), 100 * groups.std(ddof=1), groups.size()
    alone, beside = mean.map("{:.1f}".format), deviation.map(" ± {:.1f}".format)
    shown = alone.where(deviation.isna(), alone + beside)
    return shown.assign(seeds=number).reset_index()


def choosing(rows: Sequence[MultiChoice], found: Choices, seed: int = 0) -> pd.DataFrame:
    """Return the accuracy of every rule in percent, with a 95% interval over recipes, and how many rows are ties."""
    made = []
    for rule, scores in found.scores.items():
        won = points(scores, [row.answer for row in rows])
        low, high = bootstrap_interval(won, _recipes(rows), seed)
        made.append(
            {
                "rule": rule,
                "what is compared": RULES[rule],
                "accuracy (%)": 100 * won.mean(),
                "95% interval": f"{100 * low:.1f}-{100 * high:.1f}",
                "ties": int((won == 0.5).sum()),
                "rows": len(rows),
            }
        )
    return pd.DataFrame(made)


def choice_records(rows: Sequence[MultiChoice], found: Choices) -> list[dict]:
    """Return the scores of every row under every rule, without any text."""
    return [
        {"line": row.line, "answer": row.answer}
        | {rule: [float(f"{value:.7g}") for value in scores[place]] for rule, scores in found.scores.items()}
        for place, row in enumerate(rows)
    ]


def classified_records(rows: Sequence[NextStep], asked: Sequence[Asked]) -> list[dict]:
    """Return the log-odds of every row by `shots/seed`, without any text."""
    return [
        {"line": row.line, "label": row.label}
        | {f"{one.shots}/{one.seed}": float(f"{one.found.log_odds[place]:.7g}") for one in asked}
        for place, row in enumerate(rows)
    ]


def to_jsonl(records: Sequence[Mapping]) -> str:
    """Return a JSON line a record."""
    return "".join(json.dumps(record) + "\n" for record in records)


def settings_record(asked: Sequence[Asked]) -> list[dict]:
    """Return, for each number of demonstrations and seed, which pool rows were shown, and what was lost."""
    return [
        {
            "shots": one.shots,
            "seed": one.seed,
            "demonstrations": [row.line for row in one.demonstrations],
            "content_free": one.found.content_free,
            "cut": one.found.cut,
            "merged": one.found.merged,
        }
        for one in asked
    ]


def _recipes(rows: Sequence[MultiChoice]) -> list[str]:
    """Return for every row what its recipe begins with: rows of one recipe are not independent."""
    return [row.previous.split(" . ")[0].removesuffix(" .") for row in rows]


def class_shares(rows: Sequence[NextStep]) -> Mapping[str, float]:
    """Return the shares of both labels in percent."""
    share = 100 * float(np.mean([row.label for row in rows]))
    return {"positive": share, "negative": 100 - share}
