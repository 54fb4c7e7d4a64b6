"""Files to be scored: one record a step, in the format of OpenPI, of OpenPI-C or of its clustered test file.

`align` joins predictions to references by id, never by position.
"""

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from lib.data.lines import read_jsonl, require
from lib.data.procedures import Procedure, _change, _openpi_c_id, load, parse_id, step_id
from lib.data.registry import fetch
from lib.text import to_sentence


@dataclass(frozen=True)
class ScoredFile:
    """Sentences by step id, in the file's order; `clusters` is None unless every record has labels."""

    sentences: dict[str, list[str]]
    clusters: dict[str, list[int]] | None = None


def read_scored(path: Path) -> ScoredFile:
    """Return a file of predictions or references.

    Parameters
    ----------
    path : Path
        JSON lines. `{"id": "url||n", "answers": [sentence, ...]}`, optionally with `answer_clusters`, or
        `{"id": [url, n], "answers": [[entity, attribute, before, after], ...]}`; `query` may stand beside them.

    Raises
    ------
    ValueError
        Names file and line: a malformed record, an id that stands twice, labels that do not fit.
    """
    path = Path(path)
    sentences: dict[str, list[str]] = {}
    clusters: dict[str, list[int]] = {}
    lines: dict[str, int] = {}
    for line, row in read_jsonl(path):
        identifier = _identifier(path, line, row)
        if identifier in lines:
            raise ValueError(
                f"{path}, line {line}: id {identifier!r} stands there a second time, first in line {lines[identifier]}"
            )
        lines[identifier] = line
        answers = require(path, line, row, "answers", list)
        sentences[identifier] = [_sentence(path, line, index, answer) for index, answer in enumerate(answers)]
        if "answer_clusters" in row:
            labels = require(path, line, row, "answer_clusters", list)
            if len(labels) != len(answers) or not all(isinstance(label, int) for label in labels):
                raise ValueError(
                    f"{path}, line {line}: answer_clusters is {labels!r:.80}, expected {len(answers)} integers"
                )
            clusters[identifier] = labels
    return ScoredFile(sentences, clusters if clusters and clusters.keys() == sentences.keys() else None)


def from_procedures(procedures: Sequence[Procedure]) -> ScoredFile:
    """Return the gold sentences of procedures by step id."""
    return ScoredFile({step_id(p.id, step.number): step.sentences for p in procedures for step in p.steps})


def references(dataset: str, split: str, data: str = "public") -> ScoredFile:
    """Return the gold sentences of a split; with the released clusters where there are some (OpenPI-C test)."""
    if (dataset, split, data) == ("openpi-c", "test", "public"):
        return read_scored(fetch("openpi-c/test.jsonl.clustered"))
    return from_procedures(load(dataset, split, data))


def name_of(dataset: str, split: str, data: str = "public") -> str:
    """Return how signatures name some data: `openpi-c/test` is the public split, anything else has its folder first."""
    own = f"{dataset}/{split}"
    return own if data == "public" else f"{Path(data).name}/{own}"


def from_predictions(procedures: Sequence[Procedure], predictions: Sequence[Sequence[Sequence[str]]]) -> ScoredFile:
    """Return predictions (procedure, step, sentences) by step id."""
    return ScoredFile(
        {
            step_id(procedure.id, step.number): list(sentences)
            for procedure, by_step in zip(procedures, predictions, strict=True)
            for step, sentences in zip(procedure.steps, by_step, strict=True)
        }
    )


def to_jsonl(file: ScoredFile) -> str:
    """Return the text of a predictions file in OpenPI's format, one step a line."""
    rows = ({"id": name, "answers": sentences} for name, sentences in file.sentences.items())
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def side_by_side(predictions: ScoredFile, gold: ScoredFile, steps: int) -> pd.DataFrame:
    """Return gold and predicted sentences of the first steps beside each other (for our own sample only)."""
    rows = [
        {"step": name, "gold": g, "predicted": p}
        for name in list(gold.sentences)[:steps]
        for g, p in itertools.zip_longest(gold.sentences[name], predictions.sentences[name], fillvalue="")
    ]
    return pd.DataFrame(rows, columns=["step", "gold", "predicted"])


def align(predictions: ScoredFile, references: ScoredFile) -> list[str]:
    """Return the ids of the references, in their order, after checking that the predictions have exactly these.

    Raises
    ------
    ValueError
        If ids are missing from the predictions or extra in them, with counts and the first of each.
    """
    missing = [name for name in references.sentences if name not in predictions.sentences]
    extra = [name for name in predictions.sentences if name not in references.sentences]
    problems = [
        f"{len(names)} of the {kind} (first {names[0]!r})"
        for kind, names in (
            ("references' steps are not predicted", missing),
            ("predicted steps are in no reference", extra),
        )
        if names
    ]
    if problems:
        raise ValueError("ids do not agree: " + "; ".join(problems) + ". Score the split that was predicted, whole")
    return list(references.sentences)


def _identifier(path: Path, line: int, row: dict) -> str:
    """Return the step's id in either form."""
    if isinstance(row.get("id"), str):
        return step_id(*parse_id(path, line, row["id"]))
    return step_id(*_openpi_c_id(path, line, require(path, line, row, "id", list)))


def _sentence(path: Path, line: int, index: int, answer: object) -> str:
    """Return an answer as a sentence."""
    if isinstance(answer, str):
        return answer
    return to_sentence(_change(path, line, index, answer, None))
