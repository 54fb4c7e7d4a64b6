"""Killed at random moments, started again: `make reproduce` on a copy with five runs. About five minutes."""

import json
import random
import shutil
import signal
import subprocess
import sys
import time

import psutil
import pytest

from tests.workflow import assert_same_tables, surroundings, tables

pytestmark = pytest.mark.slow

RUNS = ["01_data_audit/audit", "02_cleaning/cleaning", "03_baselines/bart", "04_emem/emem", "08_tables/tables"]
LIMIT = 300  # seconds for anything that is waited for


@pytest.fixture(scope="module")
def small(project):
    """Return the copy with five of the smoke runs, each on the output of the one before."""
    for path in (project / "params" / "smoke").glob("*/*.yaml"):
        if f"{path.parent.name}/{path.stem}" not in RUNS:
            path.unlink()
    for name in ("03_baselines/bart", "04_emem/emem"):
        with (project / "params" / "smoke" / f"{name}.yaml").open("a") as file:
            file.write("precision: fp32\n")  # `auto` measures what is faster, which other work on the machine changes
    (project / ".venv").symlink_to(sys.prefix)
    yield project
    for process in alive(project):
        process.kill()


@pytest.fixture(scope="module")
def undisturbed(small):
    """Return the tables and scores of a run that nobody disturbs; about a minute and a half."""
    status, output = make(small).finish()
    assert status == 0, output
    found = tables(small), scores(small)
    assert len(found[1]) == len(RUNS)
    shutil.rmtree(small / "outputs" / "smoke")
    return found


class make:  # noqa: N801 - reads like the command
    """`make reproduce` in the background, with this environment's packages."""

    def __init__(self, project):
        self.project, self.log = project, project / "said.log"
        command = ["make", "--old-file=.venv/.ready", f"PYTHON={sys.executable}", "reproduce", "CORES=2"]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command, cwd=project, env=surroundings(project), stdout=log, stderr=subprocess.STDOUT
            )

    def finish(self):
        """Wait for the end; return the exit status and what was said."""
        return self.process.wait(LIMIT), self.log.read_text()

    def find(self, *words):
        """Wait for a process of the copy with all words in its command line."""
        return wait_for(lambda: next((p for p in alive(self.project) if set(words) <= set(p.cmdline())), None))


def alive(project):
    """Return the Python processes that work in the copy."""
    found = []
    for process in psutil.process_iter():
        try:
            inside = process.cwd().startswith(str(project)) and process.status() != psutil.STATUS_ZOMBIE
            if inside and "python" in process.name():
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            pass
    return found


def wait_for(look, limit=LIMIT):
    """Return what `look` finds, as soon as it finds something."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        if found := look():
            return found
        time.sleep(0.02)
    raise AssertionError("waited in vain")


def scores(project):
    """Return the runs' scores by file, without wall times."""
    smoke = project / "outputs" / "smoke"
    found = {str(path): json.loads(path.read_text())["scores"] for path in smoke.glob("*/*/metrics.json")}
    for each in found.values():
        each.pop("wall_time_seconds", None)
    return found


def finished(output):
    """Return the runs that were finished."""
    return [line.split("] ")[1].split(":")[0] for line in output.splitlines() if ": finished in " in line]


def kernel_of(run):
    """Return a run's kernel."""
    return wait_for(lambda: next((p for p in run.children() if "ipykernel_launcher" in p.cmdline()), None))


def test_1_a_second_start_is_refused_and_a_killed_one_leaves_neither_lock_nor_process(small):
    first = make(small)
    snakemake = first.find("-m", "snakemake")
    kernel = kernel_of(first.find("lib.runs", "execute"))
    second = subprocess.run(
        first.process.args, cwd=small, env=surroundings(small), capture_output=True, text=True, timeout=60
    )
    assert second.returncode != 0
    assert "PROFILE=smoke: workflow is in the hands of another process" in second.stdout + second.stderr
    assert "wait for it or stop it, then start again" in second.stdout + second.stderr
    assert kernel.is_running()
    snakemake.send_signal(signal.SIGKILL)
    assert first.process.wait(10) != 0
    wait_for(lambda: not alive(small), 10)


def test_2_killed_at_random_moments_it_ends_with_the_tables_of_an_undisturbed_run(small, undisturbed):
    """Killed are Snakemake, the kernel of a training between two checkpoints, and a run; about three minutes."""
    moments = random.Random(5)
    said = []

    def kill(choose):
        start = make(small)
        choose(start).send_signal(signal.SIGKILL)
        status, output = start.finish()
        assert status != 0
        wait_for(lambda: not alive(small), 10)
        said.append(output)

    def at_random(process, latest):
        time.sleep(moments.uniform(0, latest))
        return process

    def snakemake(start):
        start.find("lib.runs", "01_data_audit")
        return at_random(start.find("-m", "snakemake"), 20)

    def training(start):
        kernel = kernel_of(start.find("lib.runs", "03_baselines"))
        wait_for(lambda: list((small / "outputs" / "smoke" / "03_baselines").glob("bart/checkpoints-*/checkpoint-*")))
        return at_random(kernel, 1.5)

    def run(start):
        return at_random(start.find("lib.runs", "04_emem"), 15)

    for choose in (snakemake, training, run):
        kill(choose)
    status, output = make(small).finish()
    assert status == 0, output
    assert "03_baselines/bart: Kernel died" in said[1]
    assert "resuming after update" in (small / "outputs/smoke/03_baselines/bart/notebook.ipynb").read_text()
    assert_same_tables(tables(small), undisturbed[0])
    assert scores(small) == undisturbed[1]
    done = [name for one in (*said, output) for name in finished(one)]
    assert sorted(set(done)) == RUNS
    assert [name for name in done if done.count(name) > 1] == []
    assert list((small / "outputs" / "smoke").rglob("*.partial*")) == []


def test_3_damaged_metrics_are_an_error_whose_remedy_works(small, undisturbed):
    """The remedy makes that run and the tables again and nothing else; about a minute."""
    folder = small / "outputs" / "smoke" / "01_data_audit" / "audit"
    (folder / "metrics.json").write_text('{"scores": ')
    status, output = make(small).finish()
    assert status != 0
    (failed,) = [line for line in output.splitlines() if line.startswith("error: 08_tables/tables")]
    assert "outputs/smoke/01_data_audit/audit/metrics.json is not the file that its run wrote" in failed
    assert "make reproduce PROFILE=smoke after removing outputs/smoke/01_data_audit/audit" in failed
    shutil.rmtree(folder)
    status, output = make(small).finish()
    assert (status, finished(output)) == (0, ["01_data_audit/audit", "08_tables/tables"]), output
    assert_same_tables(tables(small), undisturbed[0])
    assert scores(small) == undisturbed[1]
