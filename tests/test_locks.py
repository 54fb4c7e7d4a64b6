"""One writer a place, and runs that end with their workflow."""

import os
import signal
import subprocess
import sys
import time

import pytest

from lib import locks
from lib.paths import ROOT

SLEEP = "print('ready', flush=True); time.sleep(60)"
HOLD = f"import sys, time, pathlib; from lib import locks; locks.hold(pathlib.Path(sys.argv[1])); {SLEEP}"
WATCH = f"import time; from lib import locks; locks.end_with_workflow(0.1); {SLEEP}"


def start(code, *arguments, **settings):
    """Start Python on some code and wait for its first line."""
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT, env=os.environ | settings, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout.readline()
    return process


def test_a_second_process_is_refused_until_the_first_is_killed(tmp_path):
    path = tmp_path / "outputs" / ".locks" / "workflow.lock"
    first = start(HOLD, str(path))
    with pytest.raises(RuntimeError, match=r"workflow is in the hands of another process .*wait for it or stop it"):
        locks.hold(path)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    locks.hold(path)
    locks.hold(path)  # again in the same process
    locks.release(path)
    locks.release(path)


def test_who_waits_gets_the_lock_of_a_process_that_ends(tmp_path):
    path = tmp_path / "run.lock"
    first = start(HOLD.replace("60", "1"), str(path))
    locks.hold(path, patience=30)
    locks.release(path)
    first.communicate()


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "outputs").write_text("a file in the folder's place")
    with pytest.raises(OSError, match=r"cannot write .*outputs.*make the folder writable"):
        locks.hold(tmp_path / "outputs" / "run.lock")


def test_a_run_ends_with_its_workflow_and_says_so(monkeypatch):
    workflow = start(f"import time; {SLEEP}")
    monkeypatch.setattr(os, "getpid", lambda: workflow.pid)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    locks.announce_workflow()
    run = start(WATCH, **{locks.WORKFLOW: os.environ[locks.WORKFLOW]})
    time.sleep(0.5)
    assert run.poll() is None
    workflow.kill()
    workflow.communicate()
    _, errors = run.communicate(timeout=20)
    assert run.returncode == 1
    assert f"the workflow (process {workflow.pid}) is gone" in errors


@pytest.mark.parametrize("elsewhere", ["", "another-machine:1"])
def test_a_run_by_hand_or_on_another_machine_goes_on(elsewhere):
    run = start(WATCH, **{locks.WORKFLOW: elsewhere})
    time.sleep(0.5)
    assert run.poll() is None
    run.kill()
    run.communicate()
