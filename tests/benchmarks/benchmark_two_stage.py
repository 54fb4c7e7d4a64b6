"""Two-stage decoding in batches against one prompt at a time: `python tests/benchmarks/benchmark_two_stage.py`.

The second stage is asked about the gold entities of the sample's test steps, a warm-started BART with 3 decoder layers
and beam 4: all (step, entity) prompts of the data set in length-sorted batches, as `TwoStageDecoder` does it, against
the released way, a prompt at a time. The answers must be equal.
"""

import argparse
import time
from dataclasses import replace

import torch

from lib.data import load
from lib.decoding import TwoStageDecoder
from lib.generation import Decoding
from lib.models import load_seq2seq
from lib.stages import gold_first


def timed(second, procedures, how):
    """Return the answers by entity, how many there are, and seconds."""
    decoder = TwoStageDecoder(gold_first, second, second_decoding=how, progress=False)
    started = time.perf_counter()
    decoder.predict(procedures)
    return decoder.by_entity, decoder.report.questions, time.perf_counter() - started


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="warm:minilm", help="tiny for a quick try")
    parser.add_argument("--batches", type=int, nargs="+", default=[8, 16, 32])
    chosen = parser.parse_args()
    second = load_seq2seq(chosen.model, decoder_layers=3)
    procedures = load("openpi-c", "test", "sample")
    how = Decoding(4, max_new_tokens=40, batch_size=1)
    expected, questions, slow = timed(second, procedures, how)
    print(f"{questions} prompts, {torch.get_num_threads()} threads; one at a time {questions / slow:.2f} prompts/s")
    for size in chosen.batches:
        found, _, fast = timed(second, procedures, replace(how, batch_size=size))
        assert found == expected
        print(f"batches of {size:3}: {questions / fast:6.2f} prompts/s, {slow / fast:.1f}x, equal answers")


if __name__ == "__main__":
    main()
