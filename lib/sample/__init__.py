"""Our own small data in exactly the public formats; `procedures.yaml` and `texts.yaml` are written by hand.

The folder is laid out like the data cache: give it to the loaders as `root=lib.paths.SAMPLE`. `build.py` makes the
other files: `openpi/` raw with planted problems, `openpi-c/` without them, `problems.jsonl` (what was planted),
`clusters.jsonl` (20 steps whose sentences were clustered by hand, in the format of `test.jsonl.clustered`), and
`votes.jsonl` (made-up votes of three annotators, which drop the planted problems). From the texts: `wmt19/` (renderings
with references) and `summeval/` (summaries with made-up judgements).
"""
