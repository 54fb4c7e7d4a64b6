"""Token QuestEval against a plain reimplementation of the released way, and a second call from the log store.

    python tests/benchmarks/benchmark_questeval.py --pairs 4

The released way: every masked segment with its other text padded to 512 tokens, batches of 24, one pass to generate and
another for the likelihood of the targets, which are padded to 512 tokens too. Same model (a T5 of T5-small's shape with
the sample's small vocabulary, trained just long enough that its answers end after a word, as a real model's do), same
texts, equal scores; then the same call again.
"""

import argparse
import math
import tempfile
import time

import numpy as np
import torch
from transformers import T5Config, T5ForConditionalGeneration

from lib import training
from lib.data.judgements import load_ranked, pairs_path
from lib.generation import to_text
from lib.models.seq2seq import load_seq2seq, plain_generation_config
from lib.token_questeval import SEPARATOR, Masker, TokenQuestEval, learning, prepare, squad_f1
from lib.token_questeval.examples import masked_examples
from lib.token_questeval.filling import ANSWER_TOKENS, MAX_TOKENS
from lib.token_questeval.pairs import read_tsv


def small_t5():
    """Return a T5 of T5-small's shape whose answers end, and a tokenizer of its kind."""
    _, tokenizer = load_seq2seq("tiny-t5")
    torch.manual_seed(0)
    config = T5Config(
        vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id,
        decoder_start_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    model = T5ForConditionalGeneration(config)
    model.generation_config = plain_generation_config(model)
    prepare(model, tokenizer)
    pairs = read_tsv(pairs_path("wmt19/xx-en", "sample"))
    rows = learning.rows(tokenizer, list(masked_examples(pairs, form="segments", masks=4)))
    with tempfile.TemporaryDirectory() as folder:
        settings = training.Settings(1e-3, 16, updates=30, evaluate_every=30, precision="fp32")
        training.fit(model, tokenizer, rows, rows[:8], folder, settings)
    return model.eval(), tokenizer


@torch.inference_mode()
def released_way(model, tokenizer, texts, sources, batch=24):
    """Return one score a pair, computed the slow way."""
    masker = Masker()
    masked = masker.mask([*texts, *sources])
    questions = []  # (pair, direction, segment, other text, truth)
    for pair, (text, source) in enumerate(zip(texts, sources, strict=True)):
        questions += [(pair, 0, item.segment, source, item.text) for item in masked[pair]]
        questions += [(pair, 1, item.segment, text, item.text) for item in masked[len(texts) + pair]]
    scores = {}
    for start in range(0, len(questions), batch):
        chunk = questions[start : start + batch]
        whole = {"padding": "max_length", "truncation": True, "max_length": MAX_TOKENS, "return_tensors": "pt"}
        inputs = tokenizer([f"{segment} {SEPARATOR} {other}" for _, _, segment, other, _ in chunk], **whole)
        targets = tokenizer([truth for *_, truth in chunk], **whole)
        inputs.pop("token_type_ids", None)
        generated = model.generate(**inputs, num_beams=1, do_sample=False, max_new_tokens=ANSWER_TOKENS)
        labels, live = targets.input_ids, targets.attention_mask.bool()
        logits = model(**inputs, labels=labels).logits.log_softmax(-1)
        chosen = logits.gather(-1, labels[..., None])[..., 0] * live
        means = (chosen.sum(1) / live.sum(1)).tolist()
        for (pair, direction, _, _, truth), ids, mean in zip(chunk, generated.tolist(), means, strict=True):
            end = ids.index(tokenizer.eos_token_id) if tokenizer.eos_token_id in ids else len(ids)
            scores.setdefault((pair, direction), []).append(
                (squad_f1(to_text(tokenizer, ids[1:end]), truth), math.exp(mean))
            )
    return [float(np.mean([np.mean(scores[pair, d]) for d in (0, 1)])) for pair in range(len(texts))], len(questions)


def main():
    """Time both, check that they agree, and print ratios."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pairs", type=int, default=4)
    parser.add_argument("--data", default="sample", help="public, or sample")
    given = parser.parse_args()
    rows = load_ranked("wmt19/kk-en" if given.data == "public" else "wmt19/yy-en", given.data)
    rows = list({row.reference: row for row in rows}.values())[: given.pairs]
    texts, sources = [row.better for row in rows], [row.reference for row in rows]
    model, tokenizer = small_t5()
    lengths = [len(tokenizer(f"{t} {SEPARATOR} {s}").input_ids) for t, s in zip(texts, sources, strict=True)]
    with tempfile.TemporaryDirectory() as folder:
        metric = TokenQuestEval((model, tokenizer), log_dir=folder)
        metric.corpus_questeval(texts[:1], sources[:1])  # warm up spaCy and torch, on texts that are asked again
        metric = TokenQuestEval((model, tokenizer), log_dir=f"{folder}/timed")
        seconds = []
        for _ in range(2):
            started = time.perf_counter()
            ours = metric.corpus_questeval(texts, sources)["ex_level_scores"]
            seconds.append(time.perf_counter() - started)
    started = time.perf_counter()
    theirs, masks = released_way(model, tokenizer, texts, sources)
    plain = time.perf_counter() - started
    difference = max(abs(a - b) for a, b in zip(ours, theirs, strict=True))
    print(f"{len(rows)} pairs of {given.data}, {masks} masks, inputs of {min(lengths)} to {max(lengths)} tokens")
    print(f"released way {plain:.2f} s, ours {seconds[0]:.2f} s ({plain / seconds[0]:.1f}x), again {seconds[1]:.3f} s")
    print(f"from the store {seconds[0] / seconds[1]:.0f}x; largest difference of a pair's score {difference:.1e}")
    if difference > 1e-5:
        raise SystemExit("the scores differ by more than 1e-5")


if __name__ == "__main__":
    main()
