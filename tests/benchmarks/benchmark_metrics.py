"""Time the original F1 against a plain implementation without caches: `python tests/benchmarks/benchmark_metrics.py`.

The plain one is written from the metric's definition and nothing else: every pair is normalised, stemmed and compared
anew. Both score the GPT-2 predictions published with OpenPI (560 steps) under all three matches; equal to 1e-9.
"""

import math
import string
import time
from collections import Counter

from nltk.stem.porter import PorterStemmer

from lib.data import align, fetch, read_scored
from lib.metrics import MATCHES, match, openpi_f1

TEMPLATE = {"and", "was", "is", "before", "afterwards", "after", "of"}


def plain_normalize(sentence):
    text = "".join(character for character in sentence.lower() if character not in string.punctuation)
    stemmer = PorterStemmer()
    return [stemmer.stem(word) for word in text.split() if word not in TEMPLATE]


def plain_bleu2(gold, predicted):
    product = 1.0
    for n in (1, 2):
        grams = [Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1)) for words in (gold, predicted)]
        correct = sum(min(count, grams[0][gram]) for gram, count in grams[1].items())
        product *= (correct + 1e-15) / (max(len(predicted) - n + 1, 0) + 1e-9)
    ratio = (len(predicted) + 1e-15) / (len(gold) + 1e-9)
    return math.sqrt(product) * (math.exp(1 - 1 / ratio) if ratio < 1 else 1.0)


def plain_rouge_l(gold, predicted):
    table = [[0] * (len(predicted) + 1) for _ in range(len(gold) + 1)]
    for i, a in enumerate(gold):
        for j, b in enumerate(predicted):
            table[i + 1][j + 1] = table[i][j] + 1 if a == b else max(table[i][j + 1], table[i + 1][j])
    common = table[-1][-1]
    if not common:
        return 0.0
    precision, recall = common / len(predicted), common / len(gold)
    return (1 + 1.2**2) * precision * recall / (recall + 1.2**2 * precision)


def plain_match(gold, predicted, name):
    gold, predicted = plain_normalize(gold), plain_normalize(predicted)
    if not gold or not predicted:
        return float(not gold and not predicted)
    if name == "exact":
        return float(gold == predicted)
    return plain_bleu2(gold, predicted) if name == "bleu" else plain_rouge_l(gold, predicted)


def plain_step(predicted, gold, name):
    if len(predicted) == 1 and predicted[0].strip().lower().startswith("there will be no change"):
        predicted = []
    if not gold or not predicted:
        return (float(not predicted), 1.0, float(not predicted)) if not gold else (1.0, 0.0, 0.0)
    predicted = set(predicted)
    precision = sum(max(plain_match(g, p, name) for g in gold) for p in predicted) / len(predicted)
    recall = sum(max(plain_match(g, p, name) for p in predicted) for g in gold) / len(gold)
    total = precision + recall
    return precision, recall, 2 * precision * recall / total if total else 0.0


def main():
    gold, predictions = (
        read_scored(fetch(name))
        for name in ("openpi/gold/test/id_answers.jsonl", "openpi/emnlp2020/test.predictions.jsonl")
    )
    ids = align(predictions, gold)
    predicted, references = ([file.sentences[name] for name in ids] for file in (predictions, gold))
    started = time.perf_counter()
    plain = {name: [plain_step(p, g, name) for p, g in zip(predicted, references, strict=True)] for name in MATCHES}
    plain_seconds = time.perf_counter() - started
    ours_seconds = []
    for _ in range(5):
        for cached in (match.normalize, match._stem, match._encode):
            cached.cache_clear()
        started = time.perf_counter()
        ours = {name: openpi_f1(predicted, references, name, ids=ids) for name in MATCHES}
        ours_seconds.append(time.perf_counter() - started)
    worst = max(abs(ours[name].per_step - plain[name]).max() for name in MATCHES)
    assert worst < 1e-9, worst
    best = min(ours_seconds)
    print(
        f"{len(ids)} steps, three matches: plain {plain_seconds:.2f} s, ours {best:.3f} s with cold caches (best of 5)"
    )
    print(f"ratio {plain_seconds / best:.0f}x, largest difference of any step's score {worst:.1e}")


if __name__ == "__main__":
    main()
