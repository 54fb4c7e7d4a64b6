"""Readers of text pairs to learn from: paraphrases (ParaBank 1 and 2), translations with references (WMT14 to WMT18).

Every reader yields (hypothesis, reference) a line at a time; none holds a file in memory. The addresses are those of
the released download script; the archives are large (ParaBank 1: 9 GB) and no hash of theirs is at hand, so they are
downloaded by hand and unpacked.
"""

import gzip
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from nltk.tokenize.treebank import TreebankWordDetokenizer

ADDRESSES = {
    "parabank1": "http://cs.jhu.edu/~vandurme/data/parabank-1.0-full.zip",
    "parabank2": "http://cs.jhu.edu/~vandurme/data/parabank-2.0.zip",
    "wmt14": "http://www.statmt.org/wmt14/submissions.tgz",
    "wmt15": "http://www.statmt.org/wmt15/wmt15-submitted-data.tgz",
    "wmt16": "http://data.statmt.org/wmt16/translation-task/wmt16-submitted-data-v2.tgz",
    "wmt17": "http://data.statmt.org/wmt17/translation-task/wmt17-submitted-data-v1.0.tgz",
    "wmt18": "http://data.statmt.org/wmt18/translation-task/wmt18-submitted-data-v1.0.1.tgz",
}
Pair = tuple[str, str]


def read_tsv(path: Path) -> Iterator[Pair]:
    """Yield the pairs of a tab-separated file, `.gz` or not.

    Raises
    ------
    ValueError
        If a line has not two fields, naming file and line.
    """
    with _open(path) as file:
        for number, line in enumerate(file, start=1):
            fields = line.rstrip("\n").split("\t")
            if len(fields) != 2:
                raise ValueError(f"{path}, line {number}: {len(fields)} fields, expected hypothesis TAB reference")
            yield fields[0].strip(), fields[1].strip()


def read_parabank1(path: Path, scores: Path, threshold: float = 0.7) -> Iterator[Pair]:
    """Yield each sentence of ParaBank 1 with its first paraphrase that scores at least `threshold`, detokenised.

    Parameters
    ----------
    path : Path
        `parabank.tsv`: a sentence and its paraphrases a line.
    scores : Path
        `parabank.meta`: `{"paraphrases": [{"model_score": 0.9}, ...]}` a line, in the same order.

    Raises
    ------
    ValueError
        If the files do not agree, naming both and the line.
    """
    join = TreebankWordDetokenizer().detokenize
    with _open(path) as file, _open(scores) as meta:
        for number, (line, known) in enumerate(_both(file, meta, path, scores), start=1):
            reference, *paraphrases = line.rstrip("\n").split("\t")
            values = [float(item["model_score"]) for item in json.loads(known)["paraphrases"]]
            if len(values) != len(paraphrases):
                raise ValueError(
                    f"{path}, line {number}: {len(paraphrases)} paraphrases, but {len(values)} scores in {scores}"
                )
            for paraphrase, score in zip(paraphrases, values, strict=True):
                if paraphrase != reference and score >= threshold:
                    yield join(paraphrase.split()), join(reference.split())
                    break


def read_parabank2(path: Path, seed: int = 0) -> Iterator[Pair]:
    """Yield each sentence of ParaBank 2 with one of its paraphrases, drawn by the seed and the line's number.

    A line holds a score of the sentence pair that it was made from, the sentence and up to five paraphrases.
    """
    with _open(path) as file:
        for number, line in enumerate(file):
            _, *texts = line.rstrip("\n").split("\t")
            if len(texts) > 1:
                yield random.Random(f"{seed}:{number}").choice(texts[1:]).strip(), texts[0].strip()


def read_wmt(folder: Path, year: int) -> Iterator[Pair]:
    """Yield every system's translations into English with the references of one year's news task.

    Parameters
    ----------
    folder : Path
        An unpacked archive, or the folder of one year: references are `newstest20YY-xxen-ref.en` (WMT14:
        `newstest20YY-ref.xx-en`), translations `newstest20YY.SYSTEM.xx-en` in a folder `xx-en`.
    year : int
        14 to 18.

    Raises
    ------
    ValueError
        If there is no reference, or a translation has not as many lines as its reference, naming both.
    """
    name = f"newstest20{year}"
    references = {}
    for path in sorted(Path(folder).rglob(f"{name}*")):
        if found := re.fullmatch(rf"{name}-(?:(\w\w)en-ref\.en|ref\.(\w\w)-en)", path.name):
            references.setdefault(f"{found[1] or found[2]}-en", path)
    if not references:
        raise ValueError(
            f"{folder} holds no {name}-xxen-ref.en: unpack {ADDRESSES.get(f'wmt{year}', 'the archive')} there"
        )
    for languages, reference in references.items():
        for path in sorted(Path(folder).rglob(f"{languages}/{name}.*.{languages}")):
            with _open(path) as hypotheses, _open(reference) as truths:
                for hypothesis, truth in _both(hypotheses, truths, path, reference):
                    yield hypothesis.strip(), truth.strip()


def _both(first: TextIO, second: TextIO, first_path: Path, second_path: Path) -> Iterator[tuple[str, str]]:
    """Yield the lines of two files side by side."""
    try:
        yield from zip(first, second, strict=True)
    except ValueError as error:
        raise ValueError(f"{first_path} and {second_path} have not as many lines: {error}") from None


def _open(path: Path) -> TextIO:
    """Open a text file, packed or not; only a line feed ends a line."""
    if Path(path).suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8", newline="\n")
    return open(path, encoding="utf-8", newline="\n")
