"""Texts that people judged (SummEval, WMT's better-or-worse translations) and text pairs, in the cache's formats."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lib.data.convert import DIMENSIONS
from lib.data.lines import read_jsonl, require
from lib.data.registry import fetch
from lib.paths import ROOT, SAMPLE


@dataclass(frozen=True)
class Article:
    """An article, its summaries by system, people's summaries, and four judgements of each system's summary (1 to 5).

    `judgements[dimension]` is in the order of `systems` and `summaries`.
    """

    id: str
    text: str
    systems: tuple[str, ...]
    summaries: tuple[str, ...]
    references: tuple[str, ...]
    judgements: dict[str, tuple[float, ...]]


@dataclass(frozen=True)
class Ranked:
    """Two translations of one sentence, of which people found one better."""

    reference: str
    better: str
    worse: str
    better_system: str
    worse_system: str


def load_summeval(data: str = "public") -> list[Article]:
    """Return SummEval's articles; `data` is `public`, `sample` or a folder."""
    path = _path("summeval/summeval.jsonl", data)
    articles = []
    for line, row in read_jsonl(path):
        systems = require(path, line, row, "systems", list)
        summaries = require(path, line, row, "machine_summaries", list)
        judgements = {name: require(path, line, row, name, list) for name in DIMENSIONS}
        for name, values in {"machine_summaries": summaries, **judgements}.items():
            if len(values) != len(systems):
                raise ValueError(f"{path}, line {line}: {len(values)} {name} for {len(systems)} systems")
        articles.append(
            Article(
                require(path, line, row, "id", str), require(path, line, row, "text", str), tuple(systems),
                tuple(summaries), tuple(require(path, line, row, "human_summaries", list)),
                {name: tuple(map(float, values)) for name, values in judgements.items()},
            )
        )  # fmt: skip
    return articles


def load_ranked(name: str, data: str = "public") -> list[Ranked]:
    """Return better-or-worse pairs, `wmt19/kk-en`; `data` as in `load_summeval`."""
    path = _path(f"{name}.darr.jsonl", data)
    fields = ("reference", "better", "worse", "better_system", "worse_system")
    return [Ranked(*(require(path, line, row, field, str) for field in fields)) for line, row in read_jsonl(path)]


def pairs_path(name: str, data: str = "public") -> Path:
    """Return the file of hypothesis-reference pairs, `wmt19/gu-en`; `data` as in `load_summeval`."""
    return _path(f"{name}.hyp-ref.tsv", data)


def matched(articles: Sequence[Article]) -> tuple[list[str], list[str]]:
    """Return all summaries and beside each its article's text, article by article."""
    return (
        [summary for article in articles for summary in article.summaries],
        [article.text for article in articles for _ in article.summaries],
    )


def _path(name: str, data: str) -> Path:
    """Return a file of the public data, the sample, or a folder like it."""
    if data == "public":
        return fetch(name)
    return (SAMPLE if data == "sample" else ROOT / data) / name
