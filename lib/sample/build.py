"""Make the sample's files from `procedures.yaml` and `texts.yaml`: `python -m lib.sample.build`."""

import html
import json
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import yaml

from lib.data.convert import DIMENSIONS
from lib.data.procedures import QUESTION
from lib.paths import SAMPLE
from lib.results import atomic
from lib.text import StateChange, to_sentence

PLANTED = {"uncertain", "impossible"}
ANNOTATORS = ("ana", "ben", "cleo")
MINIMUM_STEPS = 3  # of a cleaned procedure (OpenPI-C paper, appendix B)


def build(target: Path = SAMPLE) -> list[Path]:
    """Write every file of the sample under `target` and return their paths."""
    procedures = yaml.safe_load((SAMPLE / "procedures.yaml").read_text(encoding="utf-8"))
    written = []
    for split in ("train", "dev", "test"):
        chosen = [procedure for procedure in procedures if procedure["split"] == split]
        for name, rows in _openpi_rows(chosen).items():
            written.append(_write(target / "openpi" / "gold" / split / f"{name}.jsonl", rows))
        written.append(_write(target / "openpi-c" / f"{split}.jsonl", _openpi_c_rows(chosen)))
    written.append(_write(target / "problems.jsonl", _problem_rows(procedures)))
    written.append(_write(target / "clusters.jsonl", _cluster_rows(procedures)))
    written.append(_write(target / "votes.jsonl", _vote_rows(procedures)))
    return written + _build_texts(target)


def _openpi_rows(procedures: list[dict]) -> dict[str, list[dict]]:
    """Return the rows of the four raw files."""
    rows: dict[str, list[dict]] = {
        name: [] for name in ("id_question", "id_question_metadata", "id_answers", "id_answers_metadata")
    }
    for procedure in procedures:
        texts = [step["text"] for step in procedure["steps"]]
        for index, step in enumerate(procedure["steps"]):
            # As in the public files: ids and questions are HTML-escaped, metadata is not.
            identifier = html.escape(f"{procedure['url']}||{index + 1}")
            context = " ".join(texts[:index])
            rows["id_question"].append(
                {"id": identifier, "question": html.escape(f"{context} {step['text']}") + QUESTION}
            )
            metadata = {"topic": "unknown", "image_url": "unknown"}
            if procedure.get("metadata") != "unknown":
                metadata = {
                    "url": procedure["url"],
                    "step_id": str(index + 1),
                    "context": context,
                    "query": step["text"],
                    "future_context": " ".join(texts[index + 1 :]),
                    "topic": procedure["topic"],
                    "image_url": "none",
                }
            rows["id_question_metadata"].append({"id": identifier, "question_metadata": metadata})
            changes = [StateChange(*change[:4]) for change in step["changes"]]
            rows["id_answers"].append({"id": identifier, "answers": [to_sentence(change) for change in changes]})
            rows["id_answers_metadata"].append(
                {"id": identifier, "answers_metadata": [_answer_metadata(change) for change in changes]}
            )
    return rows


def _answer_metadata(change: StateChange) -> dict:
    """Return a change's parts beside its sentence."""
    return {
        "answer": to_sentence(change),
        "entity": change.entity,
        "before": change.before,
        "after": change.after,
        "attr": change.attribute,
        "modality": "without_image",
    }


def _openpi_c_rows(procedures: list[dict]) -> Iterator[dict]:
    """Yield the steps that remain without the planted problems, renumbered from 1."""
    for procedure in procedures:
        if "problem" in procedure:
            continue
        sound = [
            (step["text"], changes)
            for step in procedure["steps"]
            if "problem" not in step and (changes := [change for change in step["changes"] if len(change) == 4])
        ]
        if len(sound) < MINIMUM_STEPS:
            continue
        for number, (text, changes) in enumerate(sound, start=1):
            yield {"id": [procedure["url"], number], "query": text, "answers": changes}


def _problem_rows(procedures: list[dict]) -> Iterator[dict]:
    """Yield what was planted: kind of problem, raw step id and, for a change, its sentence."""
    for procedure in procedures:
        if "problem" in procedure:
            yield {"kind": procedure["problem"], "procedure": procedure["url"]}
        for number, step in enumerate(procedure["steps"], start=1):
            identifier = f"{procedure['url']}||{number}"
            if "problem" in step:
                yield {"kind": step["problem"], "step": identifier}
            if not step["changes"]:
                yield {"kind": "no_change", "step": identifier}
            for change in step["changes"]:
                if change[-1] in PLANTED:
                    yield {"kind": change[4], "step": identifier, "answer": to_sentence(StateChange(*change[:4]))}


def _cluster_rows(procedures: list[dict]) -> Iterator[dict]:
    """Yield the steps with hand-made labels: sentences sorted, labels renumbered in that order."""
    for procedure in procedures:
        for number, step in enumerate(procedure["steps"], start=1):
            if "clusters" not in step:
                continue
            labelled = sorted(
                (to_sentence(StateChange(*change[:4])), label)
                for change, label in zip(step["changes"], step["clusters"], strict=True)
            )
            order: dict[int, int] = {}
            yield {
                "id": f"{procedure['url']}||{number}",
                "answers": [sentence for sentence, _ in labelled],
                "answer_clusters": [order.setdefault(label, len(order)) for _, label in labelled],
            }


def _vote_rows(procedures: list[dict]) -> Iterator[dict]:
    """Yield made-up votes that drop the planted problems: three annotators, two for state changes, as in the paper.

    Nobody is asked about what an earlier stage dropped. Some annotators dissent without changing the outcome; who
    does is drawn from the item's id, so that building again gives the same file.
    """
    for procedure in procedures:
        wrong = "problem" in procedure
        yield from _three("procedure", procedure["url"], ("procedure", "not_procedure"), wrong)
    for procedure in (procedure for procedure in procedures if "problem" not in procedure):
        for number, step in enumerate(procedure["steps"], start=1):
            yield from _three("step", f"{procedure['url']}||{number}", ("valid", "invalid"), "problem" in step)
    for procedure in (procedure for procedure in procedures if "problem" not in procedure):
        for number, step in enumerate(procedure["steps"], start=1):
            for place, change in enumerate(step["changes"] if "problem" not in step else (), start=1):
                yield from _two(f"{procedure['url']}||{number}||{place}", change[4] if len(change) > 4 else "certain")


def _three(stage: str, item: str, choices: tuple[str, str], wrong: bool) -> Iterator[dict]:
    """Yield three votes, the majority against a wrong item; on every fifth item one dissents."""
    draw = zlib.crc32(item.encode())
    for index, annotator in enumerate(ANNOTATORS):
        dissents = draw % 5 == 0 and draw // 5 % 3 == index
        yield {"stage": stage, "item": item, "annotator": annotator, "vote": choices[wrong != dissents]}


def _two(item: str, verdict: str) -> Iterator[dict]:
    """Yield two votes; of two that drop a change, every other time one says `certain`."""
    draw = zlib.crc32(item.encode())
    pair = (draw % 3, (draw + 1) % 3)
    for place, index in enumerate(pair):
        dissents = verdict != "certain" and draw // 3 % 2 == 0 and place == draw // 6 % 2
        vote = "certain" if dissents else verdict
        yield {"stage": "change", "item": item, "annotator": ANNOTATORS[index], "vote": vote}


def _build_texts(target: Path) -> list[Path]:
    """Write text pairs, better-or-worse pairs and judged summaries, in the formats of the data cache."""
    texts = yaml.safe_load((SAMPLE / "texts.yaml").read_text(encoding="utf-8"))
    written = []
    for name, rows in texts["translations"].items():
        pairs = [f"{text}\t{reference}\n" for reference, *renderings in rows for text in renderings]
        path = target / "wmt19" / f"{name}.hyp-ref.tsv"
        with atomic(path) as temporary:
            temporary.write_text("".join(pairs), encoding="utf-8")
        written.append(path)
        ranked = (
            {"reference": reference, "better": better, "worse": worse, "better_system": "B", "worse_system": "W"}
            for reference, better, worse in rows
        )
        written.append(_write(target / "wmt19" / f"{name}.darr.jsonl", ranked))
    written.append(_write(target / "summeval" / "summeval.jsonl", map(_summary_row, texts["articles"])))
    return written


def _summary_row(article: dict) -> dict:
    """Return one article in the format of the data cache."""
    systems, summaries, *judgements = zip(*article["summaries"], strict=True)
    return {
        "id": article["id"],
        "text": article["text"],
        "systems": list(systems),
        "machine_summaries": list(summaries),
        "human_summaries": [article["reference"]],
        **{name: list(map(float, values)) for name, values in zip(DIMENSIONS, judgements, strict=True)},
    }


def _write(path: Path, rows: Iterable[dict]) -> Path:
    """Write JSON lines atomically."""
    with atomic(path) as temporary:
        temporary.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


if __name__ == "__main__":
    for made in build():
        print(made)
