"""Score a file of predictions: `python -m lib.metrics predictions.jsonl references.jsonl`."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from lib.data.registry import FILES, fetch
from lib.data.scoring import read_scored
from lib.metrics.clusters import EmbeddingClusterer
from lib.metrics.report import compare, per_step, six_f1s, table
from lib.results import atomic


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the six F1s with precision, recall, intervals and signatures; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m lib.metrics", description=__doc__)
    parser.add_argument("predictions", type=Path, help='JSON lines: {"id": "url||n", "answers": [sentence, ...]}')
    parser.add_argument(
        "references",
        type=Path,
        help="the same, OpenPI-C's format, or a public file by name: openpi-c/test.jsonl.clustered",
    )
    parser.add_argument(
        "--against", type=Path, metavar="FILE", help="other predictions for the same steps: paired differences of F1"
    )
    parser.add_argument("--embedder", default="wheel:minilm", help="sentence embeddings of the clusterer")
    parser.add_argument("--revision", default="", help="commit of the embedder, for a model hub name")
    parser.add_argument("--threshold", type=float, default=0.75, help="similarity above which sentences are clustered")
    parser.add_argument("--no-deduplicate", action="store_true", help="original F1 as published with OpenPI in 2020")
    parser.add_argument("--per-step", type=Path, metavar="FILE", help="also write every step's scores as JSON lines")
    chosen = parser.parse_args(arguments)
    try:
        clusterer = EmbeddingClusterer(chosen.embedder, chosen.threshold, chosen.revision)
        gold = read_scored(_references(chosen.references))
        how = {"data": chosen.references.name, "clusterer": clusterer, "deduplicate": not chosen.no_deduplicate}
        scores = six_f1s(read_scored(chosen.predictions), gold, **how)
        shown = table(scores)
        paired = None
        if chosen.against:
            paired = compare(scores, per_step(six_f1s(read_scored(chosen.against), gold, **how)))
        if chosen.per_step:
            _write_per_step(chosen.per_step, scores)
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(shown.drop(columns="signature").to_string(float_format="%.2f"))
    if paired is not None:
        print(f"\nagainst {chosen.against}, points of F1 with the 95% interval over procedures", end="\n\n")
        print(paired.to_string(float_format="%.2f"), end="\n\n")
    print(*shown["signature"], sep="\n")
    return 0


def _references(path: Path) -> Path:
    """Return the file, or the public one that is called so, from the data cache."""
    return fetch(str(path)) if not path.exists() and str(path) in FILES else path


def _write_per_step(path: Path, scores: dict) -> None:
    """Write one line a step: id and, for each metric, precision, recall and F1 in [0, 1]."""
    ids = next(iter(scores.values())).ids
    with atomic(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        for index, name in enumerate(ids):
            row = {metric: score.per_step[index].tolist() for metric, score in scores.items()}
            file.write(json.dumps({"id": name, **row}, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    sys.exit(main())
