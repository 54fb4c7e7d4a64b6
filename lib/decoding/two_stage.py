"""Two-stage decoding (OpenPI-C paper, sec. 4, Entity-Conditioned Prediction): `TwoStageDecoder`.

The first stage says what changes; its entities are asked about one by one, and the second stage's answers are put
together.
"""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tqdm import tqdm
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from lib.data import Procedure, ScoredFile, read_scored
from lib.data.examples import step_prompt
from lib.data.procedures import step_id
from lib.data.scoring import align, from_procedures
from lib.decoding.steps import predict
from lib.entities import entities_of
from lib.generation import Decoding, Output, generate
from lib.results import atomic
from lib.text import split_answer

Predictions = list[list[list[str]]]
Model = tuple[PreTrainedModel, PreTrainedTokenizerBase]
BATCHES = 8  # of prompts between two lines of the file that a decoding resumes from


@dataclass(frozen=True)
class Question:
    """One entity of one step: places of the procedure and of the step, and the second stage's prompt."""

    procedure: int
    step: int
    entity: str
    prompt: str


@dataclass(frozen=True)
class TwoStageReport:
    """What was asked and answered.

    Attributes
    ----------
    steps, silent_steps : int
        Steps, and those of which the first stage named no entity: the result is empty there.
    questions, quiet_answers : int
        (step, entity) prompts, and those answered with no change at all.
    first_outputs, outputs : int
        Sentences of either stage.
    inputs_truncated, outputs_truncated : int
        Of the second stage.
    tokens : int
        That the second stage generated.
    """

    steps: int
    silent_steps: int
    questions: int
    quiet_answers: int
    first_outputs: int
    outputs: int
    inputs_truncated: int
    outputs_truncated: int
    tokens: int


class TwoStageDecoder:
    """A first stage that finds entities and a second one that says what changes about each.

    Parameters
    ----------
    first : (model, tokenizer), path, ScoredFile or callable
        A model that `lib.decoding.predict` can use; a predictions file in OpenPI's format, or one that was read; or a
        function from procedures to predictions.
    second : (model, tokenizer) or callable
        A model trained on `lib.data.examples.entity_examples`; or a function from a list of `Question` to texts.
    preset : {"released", "safe"}
        `released`: entities are exact strings and answers are joined as they come. `safe`: entities that differ in a
        determiner or in case are asked about once, and a sentence that two answers give is kept once.
    first_decoding, second_decoding : Decoding, optional
    goal : bool
        Whether prompts begin with the goal.
    seed : int
        Of sampling.
    resume : Path, optional
        A file in which the second stage's outputs are noted as they come: started again with it, a decoding that was
        interrupted goes on where it stopped. It belongs to one second model; other prompts or settings are decoded
        anew.
    progress : bool, optional
        Show a progress bar; default only in a terminal.

    Attributes
    ----------
    first_predictions : list of list of list of str
        After `predict`: what the first stage said.
    by_entity : list of list of dict
        Procedure, step, entity -> the second stage's sentences.
    report : TwoStageReport
    """

    def __init__(
        self,
        first: Model | str | Path | ScoredFile | Callable[[Sequence[Procedure]], Predictions],
        second: Model | Callable[[Sequence[Question]], Sequence[str]],
        preset: str = "released",
        first_decoding: Decoding | None = None,
        second_decoding: Decoding | None = None,
        goal: bool = True,
        seed: int = 0,
        resume: Path | None = None,
        progress: bool | None = None,
    ):
        self.first, self.second, self.preset = first, second, preset
        self.first_decoding = first_decoding or Decoding()
        self.second_decoding = second_decoding or Decoding()
        self.goal, self.seed, self.resume, self.progress = goal, seed, resume, progress

    def predict(self, procedures: Sequence[Procedure]) -> Predictions:
        """Return the second stage's sentences of every step: procedure, step, sentences in the entities' order."""
        self.first_predictions = self._first_stage(procedures)
        questions = self.questions(procedures, self.first_predictions)
        outputs = self._second_stage(questions)
        self.by_entity: list[list[dict[str, list[str]]]] = [[{} for _ in p.steps] for p in procedures]
        for question, output in zip(questions, outputs, strict=True):
            sentences = split_answer(output.text, self.preset)
            self.by_entity[question.procedure][question.step][question.entity] = sentences
        merged = [[self._merged(by_entity) for by_entity in by_step] for by_step in self.by_entity]
        steps = [by_entity for by_step in self.by_entity for by_entity in by_step]
        self.report = TwoStageReport(
            steps=len(steps),
            silent_steps=sum(not by_entity for by_entity in steps),
            questions=len(questions),
            quiet_answers=sum(not sentences for by_entity in steps for sentences in by_entity.values()),
            first_outputs=sum(len(said) for by_step in self.first_predictions for said in by_step),
            outputs=sum(len(said) for by_step in merged for said in by_step),
            inputs_truncated=sum(output.input_truncated for output in outputs),
            outputs_truncated=sum(output.truncated for output in outputs),
            tokens=sum(output.tokens for output in outputs),
        )
        return merged

    def questions(self, procedures: Sequence[Procedure], predictions: Predictions) -> list[Question]:
        """Return a question for each entity of each step that predictions name."""
        return [
            Question(place, index, entity, step_prompt(procedure, index, self.goal, entity=entity))
            for place, (procedure, by_step) in enumerate(zip(procedures, predictions, strict=True))
            for index, sentences in enumerate(by_step)
            for entity in entities_of(sentences, self.preset)
        ]

    def _first_stage(self, procedures: Sequence[Procedure]) -> Predictions:
        """Return the first stage's predictions, wherever they come from."""
        if callable(self.first):
            return self.first(procedures)
        if isinstance(self.first, tuple):
            return predict(
                *self.first, procedures, self.first_decoding, self.preset, self.seed, progress=self.progress,
                goal=self.goal,
            )  # fmt: skip
        file = self.first if isinstance(self.first, ScoredFile) else read_scored(Path(self.first))
        align(file, from_procedures(procedures))
        return [[file.sentences[step_id(p.id, step.number)] for step in p.steps] for p in procedures]

    def _second_stage(self, questions: Sequence[Question]) -> list[Output]:
        """Return an output a question, in chunks of similar length that are noted in the file to resume from."""
        if callable(self.second):
            return [Output(text, 0, False, False) for text in self.second(questions)]
        model, tokenizer = self.second
        order = sorted(range(len(questions)), key=lambda at: (-len(questions[at].prompt), questions[at].prompt))
        size = BATCHES * self.second_decoding.batch_size
        chunks = [order[start : start + size] for start in range(0, len(order), size)]
        done = _read(self.resume)
        outputs: dict[int, Output] = {}
        hidden = None if self.progress is None else not self.progress
        for number, chunk in enumerate(tqdm(chunks, desc="second stage", unit="chunk", disable=hidden)):
            prompts = [questions[at].prompt for at in chunk]
            digest = self._digest(prompts, number)
            if digest not in done:
                made = generate(model, tokenizer, prompts, self.second_decoding, self.seed + number, progress=False)
                done[digest] = made
                _note(self.resume, digest, made)
            outputs |= zip(chunk, done[digest], strict=True)
        return [outputs[at] for at in range(len(questions))]

    def _digest(self, prompts: list[str], number: int) -> str:
        """Return what a chunk's outputs depend on, beside the model."""
        # A batch's size does not change its outputs, but with sampling.
        content = [prompts, asdict(self.second_decoding), self.seed + number]
        return hashlib.sha256(json.dumps(content, ensure_ascii=True).encode()).hexdigest()

    def _merged(self, by_entity: dict[str, list[str]]) -> list[str]:
        """Return a step's answers in one list."""
        joined = [sentence for sentences in by_entity.values() for sentence in sentences]
        return joined if self.preset == "released" else list(Counter(joined))


def _read(path: Path | None) -> dict[str, list[Output]]:
    """Return the outputs of finished chunks by digest; what an interruption left of a line is dropped."""
    done = {}
    if path is None or not path.exists():
        return done
    kept = []
    for line in _whole_lines(path):
        row = json.loads(line)
        done[row["digest"]] = [Output(*output) for output in row["outputs"]]
        kept.append(line)
    with atomic(path) as temporary:
        temporary.write_text("".join(kept), encoding="utf-8")
    return done


def _whole_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a file that end."""
    with path.open(encoding="utf-8") as file:
        yield from (line for line in file if line.endswith("\n"))


def _note(path: Path | None, digest: str, outputs: Sequence[Output]) -> None:
    """Append a chunk's outputs to the file, on the disk when this returns."""
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        row = {"digest": digest, "outputs": [list(asdict(output).values()) for output in outputs]}
        file.write(json.dumps(row, ensure_ascii=False) + "\n")
        file.flush()
        os.fsync(file.fileno())
