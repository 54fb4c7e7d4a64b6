"""STEPS with shared prefixes against lm-evaluation-harness, and against every query alone.

    python tests/benchmarks/benchmark_steps.py --harness /path/to/venv/bin/python

The harness (a development-only dependency, `pip install 'lm-eval[hf]==0.4.13'` in an environment of its own) and
`lib.steps` give the same released choices to the same model: the log-likelihoods of all options must be equal. Then
four-shot questions, batch by batch without sharing anything, against demonstrations and steps that are encoded once.
Without the public data the sample's rows are asked, and the harness is left out.
"""

import argparse
import json
import os
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from lib.data.steps import load_steps
from lib.models import load_causal
from lib.steps.prompts import ANSWERS, demonstrated, demonstrations, next_step_prompt
from lib.steps.sets import BUILT, learning_rows, question_sets
from lib.steps.tasks import choices, classify

TASKS = Path(__file__).parents[2] / "lm_eval_tasks"
HARNESS = """
import json, sys, time
from lm_eval import simple_evaluate
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager
model, tasks, rows, batch, output = sys.argv[1:]
lm = HFLM(pretrained=model, dtype="float32", device="cpu", batch_size=int(batch))
manager = TaskManager(include_path=tasks)
started = time.perf_counter()
found = simple_evaluate(lm, tasks=["steps_multi_choice"], limit=int(rows), task_manager=manager, bootstrap_iters=0)
seconds = time.perf_counter() - started
samples = sorted(found["samples"]["steps_multi_choice"], key=lambda sample: sample["doc_id"])
scores = [[answer[0][0] for answer in sample["resps"]] for sample in samples]
json.dump({"seconds": seconds, "scores": scores, "answers": [s["doc"]["answer"] for s in samples]}, open(output, "w"))
"""


def harness(python, model, rows, batch):
    """Return the harness's log-likelihood of right and wrong option, (rows, 2), and its seconds without loading."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "found.json"
        where = os.environ | {"HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1"}
        command = [python, "-c", HARNESS, model, str(TASKS), str(rows), str(batch), str(output)]
        subprocess.run(command, check=True, env=where, capture_output=True)
        found = json.loads(output.read_text())
    scores = [pair[::-1] if answer else pair for pair, answer in zip(found["scores"], found["answers"], strict=True)]
    return np.array(scores), found["seconds"]


@torch.inference_mode()
def alone(model, tokenizer, rows, shown, batch):
    """Return log-odds of whole prompts in padded batches, sorted by length, nothing shared."""
    before = demonstrated(shown)
    texts = [before + next_step_prompt(row) for row in rows]
    pairs = [(tokenizer(text).input_ids, tokenizer(answer).input_ids) for text in texts for answer in ANSWERS]
    order = sorted(range(len(pairs)), key=lambda at: -len(pairs[at][0]))
    sums = np.zeros(len(pairs))
    for start in range(0, len(order), batch):
        some = order[start : start + batch]
        ids = [torch.tensor([*pairs[at][0], *pairs[at][1]]) for at in some]
        padded = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True)
        mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in ids], batch_first=True)
        steps = model(padded, attention_mask=mask).logits.float().log_softmax(-1)
        for row, at in enumerate(some):
            context, answer = pairs[at]
            sums[at] = sum(steps[row, len(context) + k - 1, token].item() for k, token in enumerate(answer))
    return sums[::2] - sums[1::2]


def timed(function, *arguments, **keywords):
    """Return what a function gives, and seconds."""
    started = time.perf_counter()
    found = function(*arguments, **keywords)
    return found, time.perf_counter() - started


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="wheel:smollm2", help="tiny for a quick try")
    parser.add_argument("--rows", type=int, default=300)
    parser.add_argument("--batch", type=int, default=8, help="rows a forward pass, of the harness and of the plain way")
    parser.add_argument("--harness", default="", help="python of an environment with lm-eval")
    chosen = parser.parse_args()
    model, tokenizer = load_causal(chosen.model)
    model.eval()
    public = "OPENPI_DATA" in os.environ
    questions, options = (
        (load_steps("next_step"), load_steps("multi_choice")) if public else question_sets("sample")[BUILT]
    )
    questions, options = questions[: chosen.rows], options[: chosen.rows]
    print(f"{chosen.model}, {torch.get_num_threads()} threads, {len(options)} choices, {len(questions)} questions")
    found, fast = timed(choices, model, tokenizer, options)
    print(f"choices, ours: {fast:.1f} s")
    # The harness cuts a text in two by the length of its context; tokens that merge there would be another question.
    if chosen.harness and public and not found.merged:
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
            expected, slow = harness(chosen.harness, folder, len(options), chosen.batch)
        difference = np.abs(found.scores["option_sum"] - expected).max()
        print(f"choices, lm-evaluation-harness: {slow:.1f} s, {slow / fast:.1f}x; largest difference {difference:.1e}")
        assert difference < 1e-2
    shown = demonstrations(learning_rows("train", "public" if public else "sample"), 4, 0, questions)
    found, fast = timed(classify, model, tokenizer, questions, shown)
    expected, slow = timed(alone, model, tokenizer, questions, shown, chosen.batch)
    difference = np.abs(found - expected).max()
    print(
        f"four-shot: {slow:.1f} s alone, {fast:.1f} s shared, {slow / fast:.1f}x; largest difference {difference:.1e}"
    )
    assert difference < 1e-2


if __name__ == "__main__":
    main()
