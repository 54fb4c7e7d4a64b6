"""Entity memory in waves against one step at a time: `python tests/benchmarks/benchmark_memory.py`.

Training: a pack of whole procedures in waves against the released way, which decodes the history anew, without
gradient, for every example, one example at a time. Decoding: all procedures in waves against one step at a time. The
same warm-started BART with 3 decoder layers, the bundled sample's steps strung together to procedures of n steps.
Losses, gradients and texts must be equal.
"""

import argparse
import itertools
import time
from dataclasses import replace

import torch

from lib import waves
from lib.data import Procedure, load
from lib.decoding import predict
from lib.generation import Decoding
from lib.models import MemoryBart, load_seq2seq

PROCEDURES = 8


def strung(steps_each: int, number: int = PROCEDURES) -> list[Procedure]:
    """Return procedures of n steps each from the sample's training steps, taken round and round."""
    steps = itertools.cycle(step for procedure in load("openpi-c", "train", "sample") for step in procedure.steps)
    return [
        Procedure(f"x/{at}", "Do it", tuple(replace(next(steps), number=number + 1) for number in range(steps_each)))
        for at in range(number)
    ]


def in_waves(model, packs):
    """Return the summed loss of the packs after one backward pass each."""
    total = 0.0
    for batch in packs:
        loss = waves.loss(model, batch, 1)
        loss.backward()
        total += loss.item()
    return total


def recomputed(model, packs):
    """Return the same, each example alone with its history decoded anew."""
    total = 0.0
    for batch in packs:
        for rows in batch["procedures"]:
            for last in range(len(rows)):
                bank = model.new_bank(1)
                for row in rows[:last]:
                    with torch.no_grad():
                        hidden = hidden_states(model, batch, row, bank)
                    model.remember(bank, [0], hidden, [batch["mentions"][row]])
                hidden = hidden_states(model, batch, rows[last], bank)
                logits = model.lm_head(hidden) + model.final_logits_bias
                labels = batch["labels"][rows[last]]
                loss = torch.nn.functional.cross_entropy(logits[0], labels, ignore_index=-100, reduction="sum")
                loss.backward()
                total += loss.item()
    return total


def hidden_states(model, batch, row, bank):
    """Return one step's final hidden states, without the padding of its batch."""
    inputs, labels = batch["input_ids"][row], batch["labels"][row]
    inputs, labels = inputs[: int(batch["attention_mask"][row].sum())][None], labels[None]
    mask = torch.ones_like(inputs)
    states = model.model.encoder(inputs, attention_mask=mask)[0]
    return model.hidden_states(states, mask, labels, *bank.padded())


def gradients(model):
    """Return all gradients in one vector and clear them."""
    found = torch.cat([weight.grad.flatten() for weight in model.parameters() if weight.grad is not None])
    model.zero_grad()
    return found


def decode(model, tokenizer, groups):
    """Return predictions of groups of procedures, a group in waves at a time.

    History is gold, so that there is something to remember whatever an untrained model says.
    """
    how = Decoding(4, max_new_tokens=40, batch_size=16)
    return [one for group in groups for one in predict(model, tokenizer, group, how, history="gold")]


def timed(function, *arguments):
    """Return what a function gives and its seconds."""
    started = time.perf_counter()
    found = function(*arguments)
    return found, time.perf_counter() - started


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="warm:minilm", help="tiny for a quick try")
    parser.add_argument("--steps", type=int, nargs="+", default=[2, 4, 6, 12], help="steps of a procedure")
    chosen = parser.parse_args()
    bart, tokenizer = load_seq2seq(chosen.model, dropout=0.0, decoder_layers=3)
    model = MemoryBart.from_bart(bart)
    print(f"{model.num_parameters() / 1e6:.1f}M parameters, {PROCEDURES} procedures, {torch.get_num_threads()} threads")
    for steps in chosen.steps:
        procedures = strung(steps)
        rows = waves.encode_procedures(tokenizer, procedures, 256, 300)
        packs = [waves.collate(tokenizer)([row]) for row in rows]
        model.train()
        in_waves(model, packs[:1])
        model.zero_grad()
        ours, fast = timed(in_waves, model, packs)
        our_gradients = gradients(model)
        theirs, slow = timed(recomputed, model, packs)
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=0)
        torch.testing.assert_close(our_gradients, gradients(model), rtol=1e-2, atol=1e-3 * our_gradients.abs().max())
        examples = PROCEDURES * steps
        print(
            f"{steps:3} steps: training {examples / fast:6.2f} examples/s in waves, {examples / slow:6.2f} recomputed, "
            f"{slow / fast:.1f}x; ",
            end="",
            flush=True,
        )
        together, fast = timed(decode, model, tokenizer, [procedures])
        alone, slow = timed(decode, model, tokenizer, [[procedure] for procedure in procedures])
        assert together == alone
        print(f"decoding {examples / fast:6.2f} steps/s, {examples / slow:6.2f} one at a time, {slow / fast:.1f}x")


if __name__ == "__main__":
    main()
