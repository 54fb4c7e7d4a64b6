"""Speed and peak memory of a BART-large with and without entity memory, in bf16, with random weights.

    python tests/gpu/benchmark_memory_bart.py --out outputs/benchmarks/memory_bart.md

A training step is 8 steps of 64 input and 80 answer tokens (2 procedures of 4 steps), forward, backward and AdamW under
bf16 autocast; decoding is beam 4 of the same 8 inputs to 80 new tokens in bf16 weights, with 20 slots where there is
memory. Tokens are the answers'. On a machine without CUDA, `--size tiny` tries the script.
"""

import argparse
import time
from pathlib import Path

import pandas as pd
import torch
from transformers import BartConfig, BartForConditionalGeneration

from lib.memory import Mention
from lib.models.memory_bart import MemoryBart, MemoryBartConfig
from lib.results import atomic

TINY = {
    "vocab_size": 200, "d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32,
}  # fmt: skip
ROWS, INPUT, ANSWER, SLOTS, CHANGES = 8, 64, 80, 20, 6


def make(size: str, memory: str) -> BartForConditionalGeneration:
    """Return a random model: `none`, or with queries of its `own` or `shared` ones."""
    settings = TINY if size == "tiny" else {}
    torch.manual_seed(0)
    if memory == "none":
        return BartForConditionalGeneration(BartConfig(**settings))
    return MemoryBart(MemoryBartConfig(**settings, memory_query=memory))


def batch(model: BartForConditionalGeneration, device: str) -> dict:
    """Return a batch of whole procedures, or of single steps for a stock BART."""
    generator = torch.Generator().manual_seed(0)
    high = model.config.vocab_size
    made = {
        "input_ids": torch.randint(4, high, (ROWS, INPUT), generator=generator).to(device),
        "attention_mask": torch.ones(ROWS, INPUT, dtype=torch.long, device=device),
        "labels": torch.randint(4, high, (ROWS, ANSWER), generator=generator).to(device),
    }
    if isinstance(model, MemoryBart):
        width = ANSWER // CHANGES
        made["procedures"] = [list(range(ROWS // 2)), list(range(ROWS // 2, ROWS))]
        made["mentions"] = [
            [Mention((f"e{row % 3}", f"a{at}"), tuple(range(at * width, (at + 1) * width))) for at in range(CHANGES)]
            for row in range(ROWS)
        ]
    return made


def measure(work, device: str, repeats: int) -> tuple[float, float]:
    """Return seconds a repetition after a warm-up, and peak memory in GiB (NaN without CUDA)."""
    cuda = device.startswith("cuda")
    work()
    if cuda:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    started = time.perf_counter()
    for _ in range(repeats):
        work()
    if cuda:
        torch.cuda.synchronize()
    seconds = (time.perf_counter() - started) / repeats
    return seconds, torch.cuda.max_memory_allocated() / 2**30 if cuda else float("nan")


def train_step(model, inputs: dict, device: str):
    """Return a function that makes one update."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    model.train()

    def step():
        with torch.autocast(device.split(":")[0], torch.bfloat16):
            loss = model(**inputs).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if not torch.isfinite(loss):
            raise RuntimeError(f"the loss is {loss.item()}")

    return step


def decode(model, inputs: dict):
    """Return a function that decodes the batch once, with slots where the model has a memory."""
    model.eval().bfloat16()
    keywords = {name: inputs[name] for name in ("input_ids", "attention_mask")}
    if isinstance(model, MemoryBart):
        generator = torch.Generator().manual_seed(1)
        slots = torch.randn(ROWS, SLOTS, model.config.d_model, generator=generator)
        keywords["memory"] = slots.to(model.device, torch.bfloat16)
    return lambda: model.generate(
        **keywords, num_beams=4, max_new_tokens=ANSWER, min_new_tokens=ANSWER, forced_eos_token_id=None
    )


def table(size: str, device: str, repeats: int) -> pd.DataFrame:
    """Return a row a model."""
    rows = []
    for memory in ("none", "shared", "own"):
        model = make(size, memory).to(device)
        inputs = batch(model, device)
        train_seconds, train_peak = measure(train_step(model, inputs, device), device, repeats)
        model.zero_grad(set_to_none=True)
        decode_seconds, decode_peak = measure(decode(model, inputs), device, repeats)
        rows.append(
            {
                "queries to memory": memory,
                "parameters (M)": round(model.num_parameters() / 1e6, 1),
                "training tokens/s": round(ROWS * ANSWER / train_seconds),
                "training peak GiB": round(train_peak, 2),
                "decoding tokens/s": round(ROWS * ANSWER / decode_seconds),
                "decoding peak GiB": round(decode_peak, 2),
            }
        )
        del model
    return pd.DataFrame(rows)


def main(arguments: list[str] | None = None) -> pd.DataFrame:
    """Measure, print and, with `--out`, write a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", choices=["large", "tiny"], default="large")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args(arguments)
    frame = table(chosen.size, chosen.device, chosen.repeats)
    name = torch.cuda.get_device_name() if chosen.device.startswith("cuda") else "CPU"
    text = f"{chosen.size} model on {name}, torch {torch.__version__}, bf16\n\n{frame.to_markdown(index=False)}\n"
    print(text)
    if chosen.out:
        with atomic(chosen.out) as temporary:
            temporary.write_text(text, encoding="utf-8")
    return frame


if __name__ == "__main__":
    main()
