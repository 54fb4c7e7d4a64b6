"""A profile's runs end to end on a CPU, without network, before anybody pays for GPUs: `make rehearse PROFILE=paper`.

`write` makes a tiny random model for every family that the profile's runs load, and run files in `params/rehearsal/`
that differ from the profile's in `replaced` only; Snakemake runs them like any other profile; `report` says what works
and what a run will ask of a GPU. The models' tokenizers are of their families' kinds, trained on the bundled sample:
the real ones are not exercised.
"""

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import yaml

from lib import locks, results, runs
from lib.paths import OUTPUTS, PARAMS, ROOT, run_dir, shown

PROFILE = "rehearsal"
MODELS = "outputs/models/rehearsal"
PARTS = f"{MODELS}/parts"
#: parameter -> a handful, where the profile has more; 0 stands for "all" in the last three
FEW = {"epochs": 1.0, "updates": 4, "max_new_tokens": 24, "held_out": 4, "seeds": 2, "study_seeds": 2}
FEW_OF_ALL = {"study_steps": 2, "articles": 2, "ranked_rows": 4}
OFF = {"score_published": False}  # predictions that were published with the public data


def replaced(parameters: dict[str, object], profile: str) -> dict[str, object]:
    """Return those parameters of a run that the rehearsal changes, with their values there.

    Models are tiny, data are the bundled sample, rows, updates and generated tokens are a handful, and outputs are
    read and kept in the rehearsal's own folders. Everything else is as the profile has it.

    Examples
    --------
    >>> replaced({"epochs": 30.0, "beams": 4, "first": "outputs/paper/03_baselines/bart"}, "paper")
    {'epochs': 1.0, 'first': 'outputs/rehearsal/03_baselines/bart'}
    """
    changed: dict[str, object] = {}
    for name, value in parameters.items():
        if name in {"profile", "run"}:
            continue
        if name.endswith("_revision"):
            model = name.removesuffix("_revision")
            changed |= _stand_in(model, str(parameters[model])) | {name: ""}
        elif isinstance(value, str):
            changed[name] = _place(name, value, profile)
        else:
            changed[name] = _amount(name, value)
    return {name: value for name, value in changed.items() if value != parameters[name]}


def _place(name: str, value: str, profile: str) -> str:
    """Return where the rehearsal reads or keeps what the profile has elsewhere; other texts stay."""
    if value in {"public", "release"}:  # what the release dropped can only be read off the public data
        return "votes" if name == "decisions" else "sample"
    if value.startswith(f"outputs/{profile}/"):
        return value.replace(f"outputs/{profile}/", f"outputs/{PROFILE}/", 1)
    if value.startswith("wmt19/"):
        return "wmt19/yy-en" if name == "ranked" else "wmt19/xx-en"
    if name == "keep" and value:
        return f"{MODELS}/kept/{Path(value).name}"
    return PARTS if name == "parts" and value else value


def _amount(name: str, value: object) -> object:
    """Return a handful where the profile has more."""
    if name in FEW_OF_ALL | OFF:
        return (FEW_OF_ALL | OFF)[name]
    if name == "evaluate_every" and value:
        return 2
    return min(value, FEW[name]) if name in FEW else value


def _stand_in(parameter: str, model: str) -> dict[str, object]:
    """Return the tiny model in the place of a model from the hub; folders and packages stay."""
    from lib.models.families import family

    if parameter == "embedder":
        return {parameter: "wheel:minilm"}
    if (ROOT / model).is_dir() or ":" in model or model.startswith("tiny"):
        return {}
    return {parameter: f"{MODELS}/{family(model)}"}


def write(profile: str) -> int:
    """Write the rehearsal's models, masked examples and run files, and return how many runs there are.

    Raises
    ------
    ValueError
        If there is no such profile, or a model is of no family that is known here.
    """
    from lib.models.families import save_tiny

    planned = runs.plan(profile)
    folder = PARAMS / PROFILE
    shutil.rmtree(folder, ignore_errors=True)
    shutil.rmtree(OUTPUTS / PROFILE, ignore_errors=True)
    files = {}
    for run in planned:
        new = run.parameters | replaced(run.parameters, profile)
        files[folder / run.notebook / f"{run.run}.yaml"] = {k: v for k, v in new.items() if k not in {"profile", "run"}}
    files[folder / "common.yaml"] = {"profile": PROFILE}
    for name in sorted({str(new["model"]) for new in files.values() if str(new.get("model", "")).startswith(MODELS)}):
        save_tiny(Path(name).name, ROOT / name)
    if any(new.get("parts") for new in files.values()):
        _write_parts(ROOT / PARTS)
    for path, new in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        note = f"# Made from PROFILE={profile} by lib.rehearsal; do not edit.\n"
        path.write_text(note + yaml.safe_dump(new, sort_keys=False), encoding="utf-8")
    return len(planned)


def _write_parts(folder: Path) -> None:
    """Write masked examples of the sample's translations in two parts, as long ones are laid out."""
    from lib.paths import SAMPLE
    from lib.token_questeval.examples import masked_examples, write_parts
    from lib.token_questeval.pairs import read_tsv

    examples = list(masked_examples(read_tsv(SAMPLE / "wmt19" / "xx-en.hyp-ref.tsv")))[:48]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    write_parts(examples, folder / "sample.masked-examples.jsonl", size=24)


def report(profile: str) -> tuple[str, int]:
    """Return the report, also written to `outputs/rehearsal/report.md`, and how many runs do not work."""
    import pandas as pd

    from lib.estimates import GPU, estimate, paper_hours

    rows, broken = [], 0
    for run in runs.plan(profile):
        there = runs.PlannedRun(run.notebook, run.run, runs.resolve(PROFILE, run.notebook, run.run))
        state = "works" if there.manifest.exists() else _problem(there)
        broken += state != "works"
        rows.append(
            {"run": f"{run.notebook}/{run.run}", "rehearsal": state, "model": run.parameters.get("model", "")}
            | estimate(run.notebook, run.parameters)
        )
    table = pd.DataFrame(rows).fillna("").to_markdown(index=False, disable_numparse=True)
    text = f"""# Rehearsal of PROFILE={profile}

{len(rows) - broken} of {len(rows)} runs work, on a CPU and without network, with a tiny random model of each family \
in the place of the real one, the bundled sample as data, and few updates, rows and generated tokens. Not exercised: \
the real tokenizers and weights, the public data, a GPU.

Memory and hours are estimates from parameter and token counts (`lib/estimates.py` says how), for {GPU}; \
the paper trained each model of OpenPI-C in {paper_hours()} hours on such a card. `-`: nothing to load, or it hangs on \
data that are not here.

{table}
"""
    with results.atomic(OUTPUTS / PROFILE / "report.md") as target:
        target.write_text(text, encoding="utf-8")
    return text, broken


def _problem(run: runs.PlannedRun) -> str:
    """Return the error of a failed run, or which of the runs that it reads failed."""
    import nbformat

    failed = run_dir(PROFILE, run.notebook, run.run) / "failed.ipynb"
    if not failed.exists():
        return "not started: a run that it reads failed"
    for cell in nbformat.read(failed, as_version=4).cells:
        for output in cell.get("outputs", []):
            if output.output_type == "error":
                return f"{output.ename}: {output.evalue.splitlines()[0] if output.evalue else ''} ({shown(failed)})"
    return f"failed, see {shown(failed)}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write a rehearsal or report on it; return 0 if all is well."""
    parser = argparse.ArgumentParser(prog="python -m lib.rehearsal", description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=["write", "report"])
    parser.add_argument("profile")
    chosen = parser.parse_args(arguments)
    try:
        if chosen.profile == PROFILE:
            raise ValueError("PROFILE=rehearsal is made by a rehearsal: name the profile to rehearse, PROFILE=paper")
        if chosen.command == "write":
            locks.hold(OUTPUTS / PROFILE / ".locks" / "workflow.lock")  # not under a rehearsal that goes on
            print(f"Rehearsing the {write(chosen.profile)} runs of PROFILE={chosen.profile}")
            return 0
        text, broken = report(chosen.profile)
    except (OSError, RuntimeError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{text}\nAlso in {shown(OUTPUTS / PROFILE / 'report.md')}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
