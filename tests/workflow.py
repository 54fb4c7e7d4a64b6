"""A copy of the project to run the workflow on, for the tests that take minutes."""

import os
import shutil
import subprocess
import sys

import pandas as pd

from lib.paths import ROOT

WALL_TIME = ["minutes"]  # columns that no two runs have alike


def copy_project(folder):
    """Fill a folder with the project as a fresh clone would have it, without environment or data."""
    names = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    for name in names:
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


def surroundings(project, **more):
    """Return an environment in which the copy is what is imported; no data, no network."""
    kept = {key: value for key, value in os.environ.items() if key not in {"OPENPI_DATA", "OPENPI_WORKFLOW"}}
    return kept | {"PYTHONPATH": str(project), "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"} | more


def command(profile, *options, where=("--cores", "2")):
    """Return what `make` runs, with this environment's packages."""
    quiet = ("--quiet", "host", "progress", "rules", "reason")
    start = [sys.executable, "-m", "snakemake", *where, "--nolock", "--rerun-incomplete", "--keep-going"]
    return [*start, *quiet, "--config", f"profile={profile}", *options]


def snakemake(project, profile, *options, where=("--cores", "2"), **more):
    """Run the workflow on the copy; return its exit status and what it said."""
    return say(project, *command(profile, *options, where=where), **more)


def execute(project, *names, **more):
    """Make one run on the copy; return the exit status and what it said."""
    return say(project, sys.executable, "-m", "lib.runs", "execute", *names, **more)


def say(project, *words, **more):
    """Run a command in the copy; return its exit status and what it said."""
    done = subprocess.run(words, cwd=project, env=surroundings(project, **more), capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def started(output):
    """Return the runs that were started."""
    return [line.split("] ")[1].split(":")[0] for line in output.splitlines() if line.endswith(": started")]


def tables(project):
    """Return the tables of the smoke profile by name, without wall times; every cell as it is written."""
    found = {}
    for path in sorted((project / "outputs" / "smoke" / "tables").glob("*.csv")):
        table = pd.read_csv(path, dtype=str) if path.read_text().strip() else pd.DataFrame()  # nothing to show
        found[path.name] = table.drop(columns=WALL_TIME, errors="ignore")
    return found


def assert_same_tables(found, expected):
    """Compare what `tables` returned."""
    assert found.keys() == expected.keys()
    assert expected
    for name, table in expected.items():
        pd.testing.assert_frame_equal(found[name], table, obj=name)
