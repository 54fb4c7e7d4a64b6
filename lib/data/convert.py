"""SummEval and WMT19 from the pickles that BARTScore's repository publishes (Apache-2.0).

No published file has the bytes that this project reads, so `fetch` downloads the pickle at its pinned commit and
calls `summeval` or `wmt19`; the SHA-256 in the registry is that of the result. The pickles hold built-in containers
only, and an unpickler that refuses every class reads them, so that a changed file cannot run code.
By hand: `python -m lib.data.convert wmt19/gu-en.darr.jsonl data.pkl gu-en.darr.jsonl`.
"""

import json
import pickle
import sys
from collections.abc import Iterable
from pathlib import Path

DIMENSIONS = ("coherence", "consistency", "fluency", "relevance")
DARR_ROWS = 4000  # of each language pair; human better/worse judgements


def summeval(name: str, source: Path, target: Path) -> None:
    """Write one JSON line an article: text, summaries of 16 systems and of people, four human judgements each.

    Field names are those of the Hugging Face dataset `mteb/summeval`, plus `systems`; the text is re-cased in this
    source, so scores differ a little from that copy's.
    """
    _write(target, map(_summeval_row, _load(source).items()))


def wmt19(name: str, source: Path, target: Path) -> None:
    """Write the judgements (`*.darr.jsonl`) or the distinct hypothesis-reference pairs (`*.hyp-ref.tsv`)."""
    rows = list(_load(source).values())
    if name.endswith(".darr.jsonl"):
        _write(target, map(_darr_row, rows[:DARR_ROWS]))
        return
    pairs = dict.fromkeys((row[side]["sys"], row["ref"]) for row in rows for side in ("better", "worse"))
    _write_text(target, (f"{_one_line(hypothesis)}\t{_one_line(reference)}\n" for hypothesis, reference in pairs))


CONVERTERS = {"summeval": summeval, "wmt19": wmt19}


class _BuiltinsOnly(pickle.Unpickler):
    """Unpickle containers, strings and numbers; refuse every class and function."""

    def find_class(self, module: str, name: str) -> object:
        """Refuse."""
        raise pickle.UnpicklingError(f"the pickle asks for {module}.{name}: refused, only built-in containers are read")


def _load(source: Path) -> dict:
    """Return the dictionary in a pickle, or say what is wrong with the file."""
    try:
        with open(source, "rb") as file:
            content = _BuiltinsOnly(file).load()
    except (pickle.UnpicklingError, EOFError, IndexError, UnicodeDecodeError) as error:
        raise ValueError(f"{source} cannot be read as a pickle of built-in containers: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{source} holds a {type(content).__name__}, expected a dict from document to record")
    return content


def _summeval_row(item: tuple[object, dict]) -> dict:
    """Return one article with its summaries, in the order of the source."""
    identifier, document = item
    systems = document["sys_summs"]
    return {
        "id": str(identifier),
        "text": document["src"],
        "systems": list(systems),
        "machine_summaries": [system["sys_summ"] for system in systems.values()],
        "human_summaries": list(document["ref_summs"]),
        **{key: [float(system["scores"][key]) for system in systems.values()] for key in DIMENSIONS},
    }


def _darr_row(row: dict) -> dict:
    """Return one better/worse judgement."""
    return {
        "reference": row["ref"],
        "better": row["better"]["sys"],
        "worse": row["worse"]["sys"],
        "better_system": row["better"]["sys_name"],
        "worse_system": row["worse"]["sys_name"],
    }


def _one_line(text: str) -> str:
    """Fold white space, so that a text fits a TSV field."""
    return " ".join(text.split())


def _write(target: Path, rows: Iterable[dict]) -> None:
    """Write JSON lines."""
    _write_text(target, (json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def _write_text(target: Path, lines: Iterable[str]) -> None:
    """Write lines that end in a line feed on every platform."""
    with open(target, "w", encoding="utf-8", newline="\n") as file:
        file.writelines(lines)


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[1].split("/")[0] not in CONVERTERS:
        sys.exit("usage: python -m lib.data.convert NAME SOURCE.pkl TARGET, NAME as in lib.data.FILES")
    CONVERTERS[sys.argv[1].split("/")[0]](sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
