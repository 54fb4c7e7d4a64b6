"""Does the metric agree with people? SummEval's four judgements, WMT's better-or-worse pairs, and other metrics."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from rouge_score.rouge_scorer import RougeScorer
from sacrebleu.metrics import BLEU, CHRF
from sentence_transformers import SentenceTransformer

from lib.data.convert import DIMENSIONS
from lib.data.judgements import Article, Ranked
from lib.metrics.correlation import LEVELS, METHODS, darr_interval, darr_kendall, grouped, grouped_interval
from lib.token_questeval.metric import TokenQuestEval

ROUGE = {"ROUGE-1": "rouge1", "ROUGE-2": "rouge2", "ROUGE-L": "rougeL"}
OURS = "Token QuestEval"
EMBEDDING = "embeddings (cosine)"


def lexical(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, list[float]]:
    """Return ROUGE-1/2/L (F1 with stemming, the best reference), sentence BLEU and chrF, all in [0, 1].

    Parameters
    ----------
    hypotheses : sequence of str
    references : sequence of sequences of str
        One or more a hypothesis.
    """
    scorer = RougeScorer(list(ROUGE.values()), use_stemmer=True)
    bleu, chrf = BLEU(effective_order=True), CHRF()
    scores: dict[str, list[float]] = {name: [] for name in (*ROUGE, "BLEU", "chrF")}
    for text, own in zip(hypotheses, references, strict=True):
        found = [scorer.score(reference, text) for reference in own]
        for name, key in ROUGE.items():
            scores[name].append(max(item[key].fmeasure for item in found))
        scores["BLEU"].append(bleu.sentence_score(text, list(own)).score / 100)
        scores["chrF"].append(chrf.sentence_score(text, list(own)).score / 100)
    return scores


def cosine(model: SentenceTransformer, hypotheses: Sequence[str], references: Sequence[str]) -> list[float]:
    """Return the cosines of two texts' sentence embeddings; the model cuts texts that are too long for it."""
    texts = list(dict.fromkeys([*hypotheses, *references]))
    place = {text: index for index, text in enumerate(texts)}
    vectors = model.encode(texts, normalize_embeddings=True, convert_to_numpy=True, show_progress_bar=False)
    return [float(vectors[place[h]] @ vectors[place[r]]) for h, r in zip(hypotheses, references, strict=True)]


def by_summary(scores: Sequence[float], articles: Sequence[Article]) -> np.ndarray:
    """Return scores of all summaries as (articles, systems).

    Raises
    ------
    ValueError
        If the articles do not have the same systems in the same order.
    """
    systems = articles[0].systems
    if other := [article.id for article in articles if article.systems != systems]:
        raise ValueError(f"article {other[0]} has other systems than {articles[0].id}: no table of articles by systems")
    return np.asarray(scores, dtype=float).reshape(len(articles), len(systems))


def judged(articles: Sequence[Article], dimension: str) -> np.ndarray:
    """Return one judgement of all summaries, (articles, systems)."""
    return np.array([article.judgements[dimension] for article in articles])


def summary_correlations(
    scores: Mapping[str, np.ndarray], articles: Sequence[Article], seed: int = 0, resamples: int = 1000
) -> pd.DataFrame:
    """Return a row a metric, level, dimension and method: coefficient, 95% interval over articles, n and dropped."""
    rows = []
    for name, table in scores.items():
        for level in LEVELS:
            for dimension in DIMENSIONS:
                human = judged(articles, dimension)
                for method in METHODS:
                    found = grouped(table, human, method, level)
                    low, high = grouped_interval(table, human, method, level, seed, resamples)
                    rows.append((name, level, dimension, method, found.coefficient, low, high, found.n, found.dropped))
    names = ["metric", "level", "dimension", "method", "coefficient", "low", "high", "n", "dropped"]
    return pd.DataFrame(rows, columns=names)


def correlation_table(correlations: pd.DataFrame, level: str, method: str) -> pd.DataFrame:
    """Return metrics by dimensions for one level and method."""
    chosen = correlations[(correlations.level == level) & (correlations.method == method)]
    wide = chosen.pivot(index="metric", columns="dimension", values="coefficient")
    return wide.loc[list(dict.fromkeys(chosen.metric)), list(DIMENSIONS)]


def ranked_texts(rows: Sequence[Ranked]) -> tuple[list[str], list[str]]:
    """Return all better translations, then all worse ones, and the reference of each."""
    references = [row.reference for row in rows]
    return [row.better for row in rows] + [row.worse for row in rows], references * 2


def ranked_agreement(scores: Mapping[str, Sequence[float]], rows: Sequence[Ranked], seed: int = 0) -> pd.DataFrame:
    """Return a row a metric: tau, its 95% interval over references, ties and pairs.

    Parameters
    ----------
    scores : mapping
        Metric -> scores in the order of `ranked_texts`.
    """
    made = []
    groups = [row.reference for row in rows]
    for name, values in scores.items():
        better, worse = np.asarray(values[: len(rows)]), np.asarray(values[len(rows) :])
        low, high = darr_interval(better, worse, groups, seed)
        made.append((name, darr_kendall(better, worse), low, high, int((better == worse).sum()), len(rows)))
    return pd.DataFrame(made, columns=["metric", "tau", "low", "high", "ties", "n"]).set_index("metric")


def score_both(
    metric: TokenQuestEval, texts: Sequence[str], others: Sequence[str]
) -> tuple[dict[str, list[float]], dict]:
    """Return the metric's score of every pair, beside it parts of it alone, and its report.

    The parts: without tokens that normalise to nothing, each score, each direction; 0 where nothing is left.
    """
    scored = {OURS: metric.corpus_questeval(texts, others)["ex_level_scores"]}
    report = dict(metric.report)
    frame = metric.positions(texts, others)
    names = list(metric.list_scores)
    parts = {"without punctuation and articles": (frame[frame.counted], names)}
    parts |= {f"{score} alone": (frame, [score]) for score in names}
    parts |= {f"{name} alone": (frame[frame.direction == name], names) for name in metric.doc_types}
    for label, (rows, columns) in parts.items():
        by_direction = rows.groupby(["pair", "direction"])[columns].mean().mean(axis=1)
        by_pair = by_direction.groupby("pair").mean().reindex(range(len(texts)), fill_value=0.0)
        scored[f"{OURS}, {label}"] = by_pair.tolist()
    return scored, report


def by_part_of_speech(positions: pd.DataFrame, scores: Sequence[str], least: int = 20) -> pd.DataFrame:
    """Return the mean scores by part of speech, commonest first; rarer than `least` tokens are joined as `other`."""
    tags = positions.pos_tag.where(positions.pos_tag.map(positions.pos_tag.value_counts()) >= least, "other")
    grouped_by = positions.groupby(tags.rename("part of speech"))
    table = grouped_by[list(scores)].mean()
    table.insert(0, "tokens", grouped_by.size())
    return table.sort_values("tokens", ascending=False)


def summary_frame(scores: Mapping[str, Sequence[float]], articles: Sequence[Article]) -> pd.DataFrame:
    """Return every summary's scores, with article and system and without text."""
    keys = [(article.id, system) for article in articles for system in article.systems]
    return pd.DataFrame(keys, columns=["article", "system"]).assign(**scores)


def ranked_frame(scores: Mapping[str, Sequence[float]], rows: Sequence[Ranked]) -> pd.DataFrame:
    """Return both scores of every better-or-worse pair, with the systems and without text."""
    keys = [(row.better_system, row.worse_system) for row in rows]
    columns = {
        f"{name}, {side}": values[start : start + len(rows)]
        for name, values in scores.items()
        for side, start in (("better", 0), ("worse", len(rows)))
    }
    return pd.DataFrame(keys, columns=["better_system", "worse_system"]).assign(**columns)
