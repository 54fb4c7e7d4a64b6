"""Padding, speed and precision of training and decoding: `python tests/benchmarks/benchmark_training.py`.

On the warm-started BART and the public OpenPI-C train split: padding share and tokens a second with and without length
grouping, fp32 against bf16 autocast, and batched against one-at-a-time decoding, whose texts must be equal.
"""

import random
import time

import torch
from transformers import DataCollatorForSeq2Seq
from transformers.trainer_pt_utils import LengthGroupedSampler

from lib.data import load
from lib.data.examples import step_examples
from lib.encoding import IGNORED, encode
from lib.generation import Decoding, generate
from lib.models import load_seq2seq
from lib.training import LABEL_COST, use_bf16

BATCH, BATCHES = 8, 10


def batches(rows, order, collator):
    """Return padded batches drawn at random from an order of rows."""
    starts = random.Random(1).sample(range(0, len(order) - BATCH, BATCH), BATCHES)
    return [collator([dict(rows[i]) for i in order[start : start + BATCH]]) for start in starts]


def padding_share(rows, order):
    """Return the share of padding among target positions."""
    groups = [order[start : start + BATCH] for start in range(0, len(order), BATCH)]
    padded = sum(max(len(rows[i]["labels"]) for i in group) * len(group) for group in groups)
    return 1 - sum(len(row["labels"]) for row in rows) / padded


def tokens_per_second(model, chosen, bf16=False):
    """Return tokens without padding a second of forward, backward and update, after a warm-up batch."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    model.train()
    for index, batch in enumerate([chosen[0], *chosen]):
        if index == 1:
            started = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    spent = time.perf_counter() - started
    return sum(int(b["attention_mask"].sum() + (b["labels"] != IGNORED).sum()) for b in chosen) / spent


def main():
    """Measure and print."""
    model, tokenizer = load_seq2seq("warm:minilm", decoder_layers=3)
    rows = encode(tokenizer, step_examples(load("openpi-c", "train")), 256, 300)
    collator = DataCollatorForSeq2Seq(tokenizer, model=model, label_pad_token_id=IGNORED)
    shuffled = random.Random(0).sample(range(len(rows)), len(rows))
    lengths = [len(row["input_ids"]) + LABEL_COST * len(row["labels"]) for row in rows]
    grouped = list(LengthGroupedSampler(BATCH, lengths=lengths, generator=torch.Generator().manual_seed(0)))
    speeds = {}
    for name, order in (("shuffled", shuffled), ("grouped by length", grouped)):
        speeds[name] = tokens_per_second(model, batches(rows, order, collator))
        print(f"{name:18} padding {padding_share(rows, order):.1%} of targets, {speeds[name]:.0f} tokens/s")
    print(f"grouping: {speeds['grouped by length'] / speeds['shuffled']:.2f}x")
    bf16 = tokens_per_second(model, batches(rows, grouped, collator), bf16=True)
    ratio = bf16 / speeds["grouped by length"]
    taken = "bf16" if use_bf16("auto") else "fp32"
    print(f"bf16 autocast {bf16:.0f} tokens/s, {ratio:.2f}x of fp32; `auto` takes {taken}")
    prompts = [example.prompt for example in step_examples(load("openpi-c", "dev"))[:24]]
    seconds, texts = {}, {}
    for size in (1, 24):
        started = time.perf_counter()
        texts[size] = generate(model, tokenizer, prompts, Decoding(4, max_new_tokens=40, batch_size=size))
        seconds[size] = time.perf_counter() - started
    assert texts[1] == texts[24]
    gain = seconds[1] / seconds[24]
    print(f"decoding 24 steps: one at a time {seconds[1]:.1f} s, batched {seconds[24]:.1f} s, {gain:.1f}x, equal texts")


if __name__ == "__main__":
    main()
