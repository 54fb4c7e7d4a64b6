"""The log store: one JSON file a text, named by its SHA-512, in the structure of the released system.

A folder a setting: whatever moves an entry (model weights, preset, window, tokenizer) is in the folder's name, so that
a changed setting never reads a stale entry. Hypotheses and sources lie apart: one text in both roles has two logs.
Files are replaced whole, and what another process added meanwhile is kept. A file that is no log of its text is set
aside with a warning and made again.
"""

import hashlib
import json
import os
import time
import warnings
from collections.abc import Mapping
from pathlib import Path

from lib.provenance import code_version
from lib.results import atomic, to_json

ROLES = ("hyp", "src")
ANSWER_TYPE = "TOKEN"
QUESTIONS = "QG_hash=ThomasNLG/t5-qg_squad1-en"  # the released system's key; no question generator is at work
FORMAT = 1  # of the entries: raise it when they change their meaning


def new_log(role: str, text: str, questions: list[str], answers: list[dict]) -> dict:
    """Return the log of a text that nothing has been asked on yet."""
    return {
        "type": role,
        "text": text,
        "self": {ANSWER_TYPE: {QUESTIONS: {"questions": questions}, "answers": answers}},
        "asked": {},
    }


def masked_of(log: dict) -> tuple[list[str], list[dict]]:
    """Return the segments of a log's text and their ground truths (`text`, `pos_tag`)."""
    own = log["self"][ANSWER_TYPE]
    return own[QUESTIONS]["questions"], own["answers"]


def problem(log: object, role: str, text: str) -> str:
    """Return what makes `log` no log of this text in this role; empty if it is one."""
    try:
        if not isinstance(log, dict) or set(log) != {"type", "text", "self", "asked"}:
            return "not an object with type, text, self and asked"
        if log["type"] != role or log["text"] != text:
            return "the log of another text or role"
        segments, answers = masked_of(log)
        if len(segments) != len(answers) or not all(map(_is_answer, answers)):
            return f"{len(segments)} questions, {len(answers)} answers, or an answer without text and pos_tag"
        if not all(_is_entry(entry) for by_model in log["asked"].values() for entry in by_model.values()):
            return "an entry of asked without answer, bartscore or ground_truth"
    except (KeyError, TypeError, AttributeError) as error:
        return f"another structure ({type(error).__name__}: {error})"
    return ""


class LogStore:
    """Logs in a folder, or only in memory.

    Parameters
    ----------
    folder : Path or None
        None keeps nothing.
    settings : mapping
        Whatever moves an entry.

    Raises
    ------
    OSError
        If the folder cannot be written.
    """

    def __init__(self, folder: Path | None, settings: Mapping[str, object]):
        self.settings = {**settings, "format": FORMAT}
        digest = hashlib.sha256(json.dumps(self.settings, sort_keys=True).encode()).hexdigest()[:16]
        self.folder = None if folder is None else Path(folder).expanduser() / digest
        self.damaged = 0
        if self.folder is not None and not (self.folder / "settings.json").exists():
            with atomic(self.folder / "settings.json") as temporary:
                temporary.write_text(to_json({**self.settings, "code": code_version()}), encoding="utf-8")

    def path(self, role: str, text: str) -> Path:
        """Return where the log of a text lies."""
        return self.folder / role / f"{hashlib.sha512(text.encode('utf-8', 'surrogatepass')).hexdigest()}.json"

    def read(self, role: str, text: str) -> dict | None:
        """Return the log of a text, or None where there is none; a damaged file is set aside."""
        if self.folder is None:
            return None
        path = self.path(role, text)
        try:
            log = json.loads(path.read_text(encoding="utf-8"))
            wrong = problem(log, role, text)
        except FileNotFoundError:
            return None
        except ValueError as error:  # not JSON, or not UTF-8
            wrong = f"cannot be read ({error})"
        if not wrong:
            return log
        aside = path.with_suffix(f".damaged-{time.time_ns()}")
        os.replace(path, aside)
        self.damaged += 1
        warnings.warn(f"{path} is damaged: {wrong}. It is set aside as {aside.name} and made again", stacklevel=2)
        return None

    def write(self, role: str, log: dict) -> None:
        """Write the log of a text, with what another process has added to it since it was read.

        A folder that can no longer be written (a full disk) loses the log, not the scores: it warns.
        """
        if self.folder is None:
            return
        stored = self.read(role, log["text"])
        merged = log if stored is None else {**log, "asked": _merged(stored["asked"], log["asked"])}
        try:
            with atomic(self.path(role, log["text"])) as temporary:
                temporary.write_text(json.dumps(merged, ensure_ascii=True), encoding="utf-8")
        except OSError as error:
            warnings.warn(f"{error}. Scores are returned, but will be computed again next time", stacklevel=2)


def _merged(theirs: dict, ours: dict) -> dict:
    """Return both sides' entries; where both have a segment, ground truths of both."""
    merged = {segment: dict(by_model) for segment, by_model in theirs.items()}
    for segment, by_model in ours.items():
        known = merged.setdefault(segment, {})
        for model, entry in by_model.items():
            truths = known.get(model, {}).get("ground_truth", {}) | entry["ground_truth"]
            known[model] = {**entry, "ground_truth": truths}
    return merged


def _is_answer(answer: dict) -> bool:
    """Whether this is a ground truth with its part of speech."""
    return isinstance(answer["text"], str) and isinstance(answer["pos_tag"], str)


def _is_entry(entry: dict) -> bool:
    """Whether this is what a model said to a segment."""
    truths = entry["ground_truth"]
    return (
        isinstance(entry["answer"], str)
        and isinstance(entry["bartscore"], float)
        and all(isinstance(truth[score], float) for truth in truths.values() for score in ("f1", "bartscore"))
    )
