"""The smoke profile as Slurm jobs, on a Slurm of one node that this test starts and stops. Minutes: `make test-slow`.

Needs root and Debian's `apt-get install slurm-wlm munge`; nothing of an installed Slurm's settings is read or changed.
"""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections import Counter

import pytest

from lib import runs
from tests.workflow import assert_same_tables, copy_project, snakemake, surroundings, tables

MISSING = [name for name in ("munged", "slurmctld", "slurmd", "srun") if shutil.which(name) is None]
needs_slurm = [
    pytest.mark.skipif(bool(MISSING), reason=f"no {', '.join(MISSING)}: apt-get install slurm-wlm munge"),
    pytest.mark.skipif(os.geteuid() != 0, reason="not root: slurmd starts jobs as the user who submitted them"),
]
pytestmark = pytest.mark.slow

# No accounting, so states come from squeue, which keeps finished jobs for an hour. The memory is declared, not measured
# or enforced, so that the profile's requests fit any machine; the GPU is /dev/null.
SLURM_CONF = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
MinJobAge=3600
GresTypes=gpu
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 RealMemory=64000 Gres=gpu:1 State=UNKNOWN
PartitionName=all Default=YES Nodes=ALL MaxTime=INFINITE State=UP
"""


def free_ports(count):
    """Return ports that nothing listens on."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def write_settings(folder):
    """Write munge's key and Slurm's settings; return what the environment of Slurm's commands must have."""
    for name in ("state", "spool", "bin"):
        (folder / name).mkdir()
    (folder / "munge.key").touch(mode=0o400)
    (folder / "munge.key").write_bytes(os.urandom(1024))
    host, (controller_port, node_port) = socket.gethostname().split(".")[0], free_ports(2)
    text = SLURM_CONF.format(host=host, folder=folder, controller_port=controller_port, node_port=node_port)
    (folder / "slurm.conf").write_text(text)
    (folder / "gres.conf").write_text("Name=gpu File=/dev/null\n")
    # The plugin drops SLURM_ variables within a job, so srun would look for /etc/slurm/slurm.conf there.
    (folder / "bin" / "srun").write_text(
        f'#!/bin/sh\nSLURM_CONF={folder}/slurm.conf exec {shutil.which("srun")} "$@"\n'
    )
    (folder / "bin" / "srun").chmod(0o755)
    return {"SLURM_CONF": str(folder / "slurm.conf"), "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}


def ask(variables, *command):
    """Return what one of Slurm's commands prints."""
    done = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, timeout=60)
    return done.stdout


def wait_for(what, condition, folder, seconds=60):
    """Wait until a condition holds; after a minute, fail with what the daemons said."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            said = "\n".join(f"{path.name}: {path.read_text()[-1500:]}" for path in sorted(folder.glob("*.out")))
            pytest.fail(f"{what}: not within {seconds} s\n{said}")
        time.sleep(0.5)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Start munge and a Slurm of one node; yield what the environment of its commands must have; stop everything."""
    folder = tmp_path_factory.mktemp("slurm")
    variables = write_settings(folder)
    key, socket_path = folder / "munge.key", folder / "munge.socket"
    names = {"key": key, "socket": socket_path, "pid": folder / "munge.pid", "seed": folder / "munge.seed"}
    files = [f"--{name}{'' if name == 'socket' else '-file'}={path}" for name, path in names.items()]
    # --force: the temporary folder is this user's alone, and so is the socket in it.
    daemons = {"munged": ["--foreground", "--force", *files, f"--log-file={folder / 'munge.log'}"]}
    daemons |= {"slurmctld": ["-D"], "slurmd": ["-D"]}
    running = []
    try:
        for name, options in daemons.items():
            with (folder / f"{name}.out").open("w") as output:
                command = [shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin"), *options]
                running.append(subprocess.Popen(command, env=os.environ | variables, stdout=output, stderr=output))
            if name == "munged":
                wait_for("munge's socket", socket_path.exists, folder)
        wait_for("an idle node", lambda: ask(variables, "sinfo", "--noheader", "-o", "%t").strip() == "idle", folder)
        yield variables
    finally:
        # A job outlives slurmd, so the queue is emptied first, also after an error. KillWait is 30 s.
        if len(running) == len(daemons):
            ask(variables, "scancel", "--user=root")
            with contextlib.suppress(pytest.fail.Exception):
                wait_for("an empty queue", lambda: not ask(variables, "squeue", "--noheader"), folder, seconds=90)
        for daemon in reversed(running):
            daemon.terminate()
        for daemon in reversed(running):
            try:
                daemon.wait(timeout=20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


def on_cluster(project, variables, *options):
    """Run the smoke profile with `params/cluster`; states are asked for every few seconds, as the runs are short."""
    often = ("--slurm-init-seconds-before-status-checks", "3", "--slurm-keep-successful-logs")
    return snakemake(project, "smoke", *options, where=("--workflow-profile", "params/cluster", *often), **variables)


def jobs(variables):
    """Return the number of jobs by state and generic resources."""
    lines = ask(variables, "squeue", "--noheader", "--states=all", "--format=%T %b").splitlines()
    return Counter(line.strip() for line in lines)


@pytest.fixture(scope="module")
def submitted(cluster, tmp_path_factory):
    """Return a copy of the project after its smoke profile ran as jobs."""
    project = copy_project(tmp_path_factory.mktemp("submitted"))
    status, output = on_cluster(project, cluster)
    logs = sorted((project / ".snakemake" / "slurm_logs").rglob("*.log"))
    said = "\n".join(f"{path}: {path.read_text()[-3000:]}" for path in logs) if status else ""
    assert status == 0, f"{output}\n{said}"
    return project


def needs(test):
    """Skip a test where Slurm cannot be started."""
    for mark in needs_slurm:
        test = mark(test)
    return test


@needs
def test_1_every_run_of_the_smoke_profile_is_a_job_that_asks_for_no_gpu(cluster, submitted):
    assert jobs(cluster) == {"COMPLETED N/A": len(runs.plan("smoke"))}


@needs
def test_2_the_tables_equal_those_of_a_local_run(submitted, tmp_path):
    local = copy_project(tmp_path / "local")
    status, output = snakemake(local, "smoke")
    assert status == 0, output
    assert_same_tables(tables(submitted), tables(local))


@needs
def test_3_a_gpu_that_the_profile_asks_for_is_asked_of_slurm(cluster, submitted):
    manifest = min((submitted / "outputs" / "smoke" / "07_token_questeval").glob("*/manifest-*.json"))
    manifest.unlink()
    before = jobs(cluster)
    more = ("--set-resources", "gpu_notebook:gpu=1", "--", str(manifest.relative_to(submitted)))
    status, output = on_cluster(submitted, cluster, *more)
    assert status == 0, output
    assert jobs(cluster) - before == {"COMPLETED gres:gpu:1": 1}


def test_4_the_paper_profile_asks_for_a_gpu_where_models_train_or_score(tmp_path):
    project = copy_project(tmp_path / "project")
    command = [sys.executable, "-m", "snakemake", "--workflow-profile", "params/cluster", "--dry-run"]
    done = subprocess.run(
        [*command, "--config", "profile=paper"],
        cwd=project,
        env=surroundings(project),
        capture_output=True,
        text=True,
        check=True,
    )
    blocks = [block for block in done.stdout.split("\nrule ") if "wildcards:" in block]
    asked = {block.split("run=")[0].split("notebook=")[1][:2] for block in blocks if "gpu=1" in block}
    assert asked == {"03", "04", "05", "06", "07"}
    assert {block.split("run=")[0].split("notebook=")[1][:2] for block in blocks} - asked == {"00", "01", "02", "08"}
