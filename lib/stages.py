"""Two-stage decoding taken apart: `decode` for several first stages, `summary` of what each stage finds and says.

One second stage serves every first stage whose predictions a run has written, since weights are not kept.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pandas as pd
from transformers import PreTrainedModel

from lib.annotation import Item
from lib.data import Procedure, ScoredFile, read_scored
from lib.data.procedures import step_id
from lib.data.scoring import align, from_predictions, from_procedures
from lib.decoding import TwoStageDecoder, with_predictions
from lib.decoding.two_stage import Model
from lib.entities import entities_of, entity_scores
from lib.evaluation import Predictions, rouge_f1
from lib.generation import Decoding
from lib.metrics import Scores
from lib.paths import ROOT
from lib.strategies import Decoded, StepDecoder


@dataclass(frozen=True)
class Stages:
    """Both stages on the same procedures: the decoder with what it noted, and the merged predictions."""

    decoder: TwoStageDecoder
    predictions: Predictions

    @property
    def first(self) -> Predictions:
        """Return what the first stage said."""
        return self.decoder.first_predictions


def decode(
    firsts: Mapping[str, str], second: Model, procedures: Sequence[Procedure], decoding: Decoding,
    name: str = "predictions.jsonl", preset: str = "released", seed: int = 0, scratch: Path | None = None,
) -> dict[str, Stages]:  # fmt: skip
    """Return both stages for each first stage.

    Parameters
    ----------
    firsts : mapping
        Table row -> folder of the run that made the first stage's predictions, `outputs/laptop/03_baselines/bart`;
        an empty folder leaves the row out.
    second : (model, tokenizer)
    name : str
        Of the predictions file in that folder.
    scratch : Path, optional
        A folder for what an interrupted decoding resumes from.
    """
    found = {}
    for row, folder in firsts.items():
        if not folder:
            continue
        resume = scratch and scratch / f"{name.removesuffix('.jsonl')}-{folder.replace('/', '-')}.jsonl"
        decoder = TwoStageDecoder(
            predictions_file(folder, name), second, preset, second_decoding=decoding, seed=seed, resume=resume
        )
        found[row] = Stages(decoder, decoder.predict(procedures))
    return found


def predictions_file(folder: str, name: str = "predictions.jsonl") -> Path:
    """Return a predictions file of a run.

    Raises
    ------
    FileNotFoundError
        If the run has not written it: says how to make the run.
    """
    path = ROOT / folder / name
    if not path.exists():
        profile = folder.split("/")[1] if folder.count("/") > 1 else "smoke"
        raise FileNotFoundError(
            f"{folder}/{name} does not exist: make that run first (make reproduce PROFILE={profile})"
        )
    return path


def changes_of(folder: str, procedures: Sequence[Procedure], name: str = "predictions.jsonl") -> list[Procedure]:
    """Return the procedures with the changes that a run predicted for them, as far as they can be parsed."""
    file = read_scored(predictions_file(folder, name))
    align(file, from_procedures(procedures))
    predictions = [[file.sentences[step_id(p.id, step.number)] for step in p.steps] for p in procedures]
    return with_predictions(procedures, predictions)


def slots_before(stages: Stages, procedures: Sequence[Procedure], place: int, index: int) -> list[str]:
    """Return what a memory holds before a step if it remembers what the first stage said, `attribute of entity`."""
    past = with_predictions(procedures, stages.first)[place].steps[:index]
    return list(dict.fromkeys(f"{c.attribute} of {c.entity}" for step in past for c in step.changes))


def gold_first(procedures: Sequence[Procedure]) -> Predictions:
    """Return the gold sentences as a first stage's: with them the second stage is asked about the true entities."""
    return [[list(step.sentences) for step in procedure.steps] for procedure in procedures]


def dev_scorer(tokenizer, procedures: Sequence[Procedure], decoding: Decoding) -> Callable[[PreTrainedModel], float]:
    """Return a function from a second stage to its original ROUGE-L F1 on dev, asked about gold entities, greedily."""
    how = Decoding(
        beams=1, max_new_tokens=decoding.max_new_tokens, max_input=decoding.max_input,
        batch_size=4 * decoding.batch_size,
    )  # fmt: skip
    return lambda model: rouge_f1(
        procedures,
        TwoStageDecoder(gold_first, (model, tokenizer), second_decoding=how, progress=False).predict(procedures),
    )


def summary(
    procedures: Sequence[Procedure], stages: Mapping[str, tuple[Predictions, dict[str, Scores]]]
) -> pd.DataFrame:
    """Return a row a stage: precision, recall and F1 (ROUGE-L, both metrics), outputs a step, entities found.

    Parameters
    ----------
    procedures : sequence of Procedure
        With gold changes.
    stages : mapping
        Name -> (predictions, their six F1s).

    Returns
    -------
    DataFrame
        In percent, but for outputs and distinct outputs a step. `entity` columns: exact names; `entity F1 (merged)`:
        names that differ in case or a determiner are one.
    """
    gold = [[change.entity for change in step.changes] for procedure in procedures for step in procedure.steps]
    rows = {}
    for name, (predictions, scores) in stages.items():
        steps = [sentences for by_step in predictions for sentences in by_step]
        named = [entities_of(sentences) for sentences in steps]
        exact = entity_scores(named, gold)
        rows[name] = {
            f"{label} {part}": 100 * getattr(scores[f"{key}_rouge_l"], attribute)
            for label, key in (("original", "original"), ("cluster", "cluster"))
            for part, attribute in (("P", "precision"), ("R", "recall"), ("F1", "f1"))
        } | {
            "outputs a step": sum(map(len, steps)) / len(steps),
            "distinct": sum(len(set(step)) for step in steps) / len(steps),
            "entity P": 100 * exact["precision"],
            "entity R": 100 * exact["recall"],
            "entity F1 (merged)": 100 * entity_scores(named, gold, "safe")["f1"],
        }
    return pd.DataFrame.from_dict(rows, orient="index")


class EntityStepDecoder(StepDecoder):
    """Decodes the second stage in different ways, on the entities that one first stage named.

    Parameters
    ----------
    second : (model, tokenizer)
    procedures : sequence of Procedure
    first : Predictions
        What the first stage said, however it was decoded.
    number, seed
        See `StepDecoder`.
    """

    def __init__(
        self, second: Model, procedures: Sequence[Procedure], first: Predictions, number: int = 0, seed: int = 0
    ):
        super().__init__(*second, procedures, number, seed)
        self.procedures, self.first = procedures, first
        self.chosen = {example.id for example in self.examples}

    def __call__(self, decoding: Decoding, seed: int = 0) -> Decoded:
        """Return what one way of decoding gives; the same way again is not decoded again."""
        if (decoding, seed) not in self._done:
            started = time.monotonic()
            decoder = TwoStageDecoder(
                self._first, (self.model, self.tokenizer), second_decoding=decoding, seed=seed, progress=False
            )
            file = from_predictions(self.procedures, decoder.predict(self.procedures))
            kept = {name: sentences for name, sentences in file.sentences.items() if name in self.chosen}
            seconds = round(time.monotonic() - started, 1)
            tokens = decoder.report.tokens / len(kept)
            self._done[decoding, seed] = Decoded(ScoredFile(kept), tokens, seconds)
        return self._done[decoding, seed]

    def _first(self, procedures: Sequence[Procedure]) -> Predictions:
        """Return the first stage's predictions, empty for the steps that were not chosen."""
        return [
            [
                sentences if step_id(procedure.id, step.number) in self.chosen else []
                for step, sentences in zip(procedure.steps, by_step, strict=True)
            ]
            for procedure, by_step in zip(procedures, self.first, strict=True)
        ]


def shown_step(stages: Stages, procedures: Sequence[Procedure]) -> tuple[int, int]:
    """Return places of a procedure and a step that show something: both stages speak, past steps exist.

    The first such step; where there is none, the first procedure's second step.
    """
    for place, procedure in enumerate(procedures):
        for index in range(1, len(procedure.steps)):
            if stages.first[place][index] and stages.predictions[place][index]:
                return place, index
    return 0, min(1, len(procedures[0].steps) - 1)


def item_of(procedure: Procedure, index: int) -> Item:
    """Return goal and steps up to one, for `lib.pictures`."""
    texts = tuple(step.text for step in procedure.steps[: index + 1])
    return Item(step_id(procedure.id, procedure.steps[index].number), procedure.goal, texts, index + 1, "")


def row_records(
    both: Mapping[str, Stages],
    records: Mapping[str, dict],
    paired: Mapping[str, pd.DataFrame],
    studied: Mapping[str, dict],
) -> dict[str, dict]:
    """Return what `metrics.json` holds of each table row that a run fills, in the form of a run with one row.

    Parameters
    ----------
    both : mapping
        Row -> stages.
    records : mapping
        Scores by row, and those of `majority template`.
    paired, studied : mapping
        For the rows that have them, the comparison with the first stage and the ways of decoding.
    """
    rows = {}
    for row, stages in both.items():
        steps = [sentences for by_step in stages.predictions for sentences in by_step]
        rows[row] = {
            "scores": {"model": records[row], "majority_template": records["majority template"]},
            "decoding": asdict(stages.decoder.report)
            | {
                "outputs_per_step": sum(map(len, steps)) / len(steps),
                "distinct_per_step": sum(len(set(step)) for step in steps) / len(steps),
            },
            "beside": paired[row].reset_index().to_dict("records") if row in paired else [],
            "study": studied.get(row, {}),
        }
    return rows
