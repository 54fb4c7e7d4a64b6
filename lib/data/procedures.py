"""Procedures: `load_openpi_c` and `load_openpi` read the two formats into the same dataclasses.

Both check every field and name file and line in errors. A procedure's id is its url, HTML-unescaped, so that the
two data sets join; a step's id is `url||n`.
"""

import html
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from lib.data.lines import read_jsonl, require
from lib.data.registry import fetch
from lib.paths import ROOT, SAMPLE, shown
from lib.text import StateChange, parse_sentence, to_sentence

SPLITS = ("train", "dev", "test")
QUESTION = " Now, what happens?"


@dataclass(frozen=True)
class Step:
    """One step and what changes in it.

    Attributes
    ----------
    number : int
        From 1, in the numbering of its data set: OpenPI-C renumbers what remains, so join the two by text.
    text : str
    changes : tuple of StateChange
    unparsed : tuple of str
        Sentences of the data that the preset's parser cannot read (OpenPI only): they count and score as
        sentences, but have no entity.
    """

    number: int
    text: str
    changes: tuple[StateChange, ...]
    unparsed: tuple[str, ...] = ()

    @property
    def sentences(self) -> list[str]:
        """Return the gold sentences, as the metrics read them."""
        return [*map(to_sentence, self.changes), *self.unparsed]


@dataclass(frozen=True)
class Procedure:
    """A goal and its steps; `id` is the url, HTML-unescaped."""

    id: str
    goal: str
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Rejected:
    """One malformed answer that was left out, with its place."""

    file: str
    line: int
    value: str
    reason: str


def load_openpi_c(
    split: str, preset: str = "released", root: Path | None = None, rejected: list[Rejected] | None = None
) -> list[Procedure]:
    """Return the procedures of an OpenPI-C split, in the file's order.

    Parameters
    ----------
    split : {"train", "dev", "test"}
    preset : {"released", "safe"}
        `safe` drops exact duplicates within a step (10 in train).
    root : Path, optional
        A folder laid out like the data cache, without hash checks: the bundled sample
        (`lib.paths.SAMPLE`) or data of your own. Default: the public data.
    rejected : list, optional
        Where given, malformed answers are left out and appended here with their line; by default they raise.

    Raises
    ------
    ValueError
        Names file, line and what was found: no JSON, a field missing, an answer without four parts, a repeated or
        missing step.
    """
    path = _path(f"openpi-c/{_split(split)}.jsonl", root)
    rows = []
    for line, row in read_jsonl(path):
        url, number = _openpi_c_id(path, line, require(path, line, row, "id", list))
        text = _text(path, line, "query", require(path, line, row, "query", str))
        answers = require(path, line, row, "answers", list)
        changes = [
            change
            for index, answer in enumerate(answers)
            if (change := _change(path, line, index, answer, rejected)) is not None
        ]
        if preset == "safe":
            changes = list(dict.fromkeys(changes))
        rows.append((line, url, Step(number, text, tuple(changes))))
    return _procedures(path, rows)


def load_openpi(
    split: str, preset: str = "released", root: Path | None = None, rejected: list[Rejected] | None = None
) -> list[Procedure]:
    """Return the procedures of an original OpenPI split, in the file's order.

    Answers are sentences there; `lib.text.parse_sentence` makes state changes of them under `preset`, and what it
    cannot read (8 sentences in train, 2 in test) stays in `Step.unparsed`. Parameters and errors as in
    `load_openpi_c`.
    """
    folder = f"openpi/gold/{_split(split)}"
    answers_path = _path(f"{folder}/id_answers.jsonl", root)
    texts = _openpi_texts(
        _path(f"{folder}/id_question.jsonl", root), _path(f"{folder}/id_question_metadata.jsonl", root)
    )
    rows = []
    for line, row in read_jsonl(answers_path):
        url, number = parse_id(answers_path, line, require(answers_path, line, row, "id", str))
        if (url, number) not in texts:
            raise ValueError(f"{answers_path}, line {line}: step {step_id(url, number)} has no question: {folder}")
        answers = require(answers_path, line, row, "answers", list)
        sentences = [
            answer
            for index, answer in enumerate(answers)
            if _kept(answers_path, line, f"answers[{index}]", answer, isinstance(answer, str), "a string", rejected)
        ]
        parsed = [parse_sentence(sentence, preset) for sentence in sentences]
        changes = tuple(change for change in parsed if change is not None)
        unparsed = tuple(s for s, change in zip(sentences, parsed, strict=True) if change is None)
        rows.append((line, url, Step(number, texts[url, number], changes, unparsed)))
    return _procedures(answers_path, rows)


def load(dataset: str, split: str, data: str = "public", preset: str = "released") -> list[Procedure]:
    """Return a split of `openpi` or `openpi-c`, of the public data, the bundled sample or a folder; see `root_of`."""
    loaders = {"openpi": load_openpi, "openpi-c": load_openpi_c}
    if dataset not in loaders:
        raise ValueError(f"dataset={dataset!r}: expected one of {', '.join(loaders)}")
    return loaders[dataset](split, preset, root=root_of(data))


def load_splits(dataset: str, data: str = "public", preset: str = "released") -> dict[str, list[Procedure]]:
    """Return the splits that there are: all three of the public data and the sample, those that a folder has.

    Raises
    ------
    FileNotFoundError
        If a folder has none, naming the file that was looked for.
    """
    root = root_of(data)
    places = {"openpi": "openpi/gold/{}/id_answers.jsonl", "openpi-c": "openpi-c/{}.jsonl"}
    chosen = SPLITS if root is None else [s for s in SPLITS if (root / places[dataset].format(s)).exists()]
    if not chosen:
        raise FileNotFoundError(f"{shown(root)} has no {dataset} data: {places[dataset].format('train')} is not there")
    return {split: load(dataset, split, data, preset) for split in chosen}


def root_of(data: str) -> Path | None:
    """Return the folder of some data, None for the public data; one never stands in for the other.

    Parameters
    ----------
    data : str
        `public`, `sample`, or a folder laid out like the data cache; relative to the project, `outputs/...` for what
        an earlier notebook wrote.

    Raises
    ------
    ValueError
        If it is none of these.
    FileNotFoundError
        If there is no such folder.
    """
    if data in {"public", "sample"}:
        return SAMPLE if data == "sample" else None
    if "/" not in data:
        raise ValueError(f"data={data!r}: expected public, sample, or a folder (with a slash in it)")
    folder = ROOT / Path(data).expanduser()
    if not folder.is_dir():
        hint = "; an earlier notebook makes it: make reproduce" if data.startswith("outputs/") else ""
        raise FileNotFoundError(f"data={data!r}: there is no folder {shown(folder)}{hint}")
    return folder


def step_id(url: str, number: int) -> str:
    """Return a step's id, `url||n`, with the url HTML-unescaped."""
    return f"{html.unescape(url)}||{number}"


def parse_id(path: Path, line: int, text: str) -> tuple[str, int]:
    """Return (url, step number) of an id `url||n`.

    Raises
    ------
    ValueError
        If the id has another form, naming file and line.
    """
    url, found, number = text.rpartition("||")
    if not found or not url or "||" in url or not number.isdigit() or int(number) < 1:
        raise ValueError(f"{path}, line {line}: id {text!r} is not `url||n` with a step number from 1")
    return html.unescape(url), int(number)


def goal_of(url: str) -> str:
    """Return the goal in a url: its last part with hyphens read as spaces."""
    return url.rstrip("/").rsplit("/", 1)[-1].replace("-", " ")


def _procedures(path: Path, rows: list[tuple[int, str, Step]]) -> list[Procedure]:
    """Group steps by url wherever they stand in the file; refuse repeated and missing numbers."""
    by_url: dict[str, dict[int, Step]] = {}
    for line, url, step in rows:
        steps = by_url.setdefault(url, {})
        if step.number in steps:
            raise ValueError(f"{path}, line {line}: step {step_id(url, step.number)} stands there a second time")
        steps[step.number] = step
    for url, steps in by_url.items():
        if gaps := sorted(set(range(1, len(steps) + 1)) - steps.keys()):
            raise ValueError(f"{path}: procedure {url} has {len(steps)} steps but no step {gaps[0]}: number them 1..n")
    return [Procedure(url, goal_of(url), tuple(steps[n] for n in sorted(steps))) for url, steps in by_url.items()]


def _openpi_texts(questions: Path, metadata: Path) -> dict[tuple[str, int], str]:
    """Return every step's text: `query` of the metadata, or what the question adds to the past steps."""
    asked = {}
    for line, row in read_jsonl(questions):
        key = parse_id(questions, line, require(questions, line, row, "id", str))
        question = require(questions, line, row, "question", str)
        if not question.endswith(QUESTION):
            raise ValueError(f"{questions}, line {line}: the question does not end with {QUESTION.strip()!r}")
        asked[key] = (line, _folded(question.removesuffix(QUESTION)))
    queries = {}
    for line, row in read_jsonl(metadata):
        key = parse_id(metadata, line, require(metadata, line, row, "id", str))
        queries[key] = require(metadata, line, row, "question_metadata", dict).get("query", "").strip()
    texts: dict[tuple[str, int], str] = {}
    for (url, number), (line, question) in asked.items():
        text = queries.get((url, number), "")
        if not text:
            # 22 train and 5 dev rows have a topic and nothing else: the text is only inside the question.
            past = asked[url, number - 1][1] if (url, number - 1) in asked else ""
            if not question.startswith(past) or not (text := question[len(past) :].strip()):
                raise ValueError(f"{questions}, line {line}: step {step_id(url, number)} has no text of its own")
        texts[url, number] = text
    return texts


def _folded(text: str) -> str:
    """Unescape HTML and fold white space."""
    return " ".join(html.unescape(text).split())


def _openpi_c_id(path: Path, line: int, value: list) -> tuple[str, int]:
    """Return (url, step number) of an id `[url, n]`."""
    match value:
        case [str(url), int(number)] if url.strip() and not isinstance(number, bool) and number >= 1:
            return html.unescape(url), number
    raise ValueError(f"{path}, line {line}: id is {value!r:.80}, expected [url, step number from 1]")


def _change(path: Path, line: int, index: int, answer: object, rejected: list[Rejected] | None) -> StateChange | None:
    """Return the state change of an answer with four non-empty parts."""
    where, expected = f"answers[{index}]", "(entity, attribute, before, after), four strings"
    sound = isinstance(answer, list) and len(answer) == 4 and all(isinstance(p, str) and p.strip() for p in answer)
    if not _kept(path, line, where, answer, sound, expected, rejected):
        return None
    return StateChange(*answer)


def _kept(
    path: Path, line: int, where: str, value: object, sound: bool, expected: str, rejected: list[Rejected] | None
) -> bool:
    """Return `sound`; where it is not, note the value as rejected or raise."""
    if sound:
        return True
    got = f"has {len(value)} parts" if isinstance(value, list) and len(value) != 4 else f"is {value!r:.80}"
    reason = f"{where} {got}, expected {expected}"
    if rejected is None:
        raise ValueError(
            f"{path}, line {line}: {reason}. Correct the line, or pass rejected=[] to leave such answers out and "
            "list them"
        )
    rejected.append(Rejected(str(path), line, repr(value), reason))
    return False


def _text(path: Path, line: int, name: str, value: str) -> str:
    """Refuse an empty text."""
    if not value.strip():
        raise ValueError(f"{path}, line {line}: {name} is empty")
    return value.strip()


def _path(name: str, root: Path | None) -> Path:
    """Return a file of the public data, or of a folder with the same layout."""
    return fetch(name) if root is None else Path(root) / name


def _split(split: str) -> str:
    """Refuse an unknown split."""
    if split not in SPLITS:
        raise ValueError(f"split={split!r}: expected one of {', '.join(SPLITS)}")
    return split


def count(procedures: Iterable[Procedure]) -> tuple[int, int, int]:
    """Return the numbers of procedures, steps and state changes."""
    procedures = list(procedures)
    steps = [step for procedure in procedures for step in procedure.steps]
    return len(procedures), len(steps), sum(len(step.sentences) for step in steps)
