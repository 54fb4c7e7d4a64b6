"""What runs when: a run is a parameter file, and it has finished when the manifest for its parameters exists.

    snakemake --cores all --config profile=smoke
    snakemake --workflow-profile params/cluster --config profile=paper

A manifest's name holds a digest of the run's parameters, so a changed parameter is a missing file and the run is
made again; time stamps decide nothing outside the smoke profile, where everything is cheap and follows the code.
"""

import sys

sys.path.insert(0, workflow.basedir)

from lib import locks, runs
from lib.paths import OUTPUTS, ROOT, run_dir

PROFILE = config.get("profile", "smoke")
TABLES = "08_tables"
try:
    PLAN = {(planned.notebook, planned.run): planned for planned in runs.plan(PROFILE)}
except ValueError as error:
    raise WorkflowError(str(error))

if workflow.is_main_process:  # not in the jobs of a cluster
    try:
        locks.hold(OUTPUTS / PROFILE / ".locks" / "workflow.lock")
    except (OSError, RuntimeError) as error:
        raise WorkflowError(f"PROFILE={PROFILE}: {error}")
    locks.announce_workflow()


def manifest(planned) -> str:
    """Return a run's manifest, relative to the project."""
    return str(planned.manifest.relative_to(ROOT))


def follow(paths: list[str]) -> list[str]:
    """Return inputs whose age counts in the smoke profile only: hours of training do not hang on a comment."""
    return paths if PROFILE == "smoke" else [ancient(path) for path in paths]


def sources(wildcards) -> list[str]:
    """Return the notebook and, in the smoke profile, the library."""
    library = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "lib").rglob("*.py"))] if PROFILE == "smoke" else []
    return follow([f"notebooks/{wildcards.notebook}.ipynb", *library])


def upstream(wildcards) -> list[str]:
    """Return the manifests of the runs whose outputs a run's parameters name."""
    return follow([manifest(PLAN[read]) for read in PLAN[wildcards.notebook, wildcards.run].reads])


localrules:
    all,


rule all:
    default_target: True
    input:
        [manifest(planned) for planned in PLAN.values()],


rule notebook:
    """Make one run of one notebook."""
    input:
        sources,
        upstream,
    output:
        f"outputs/{PROFILE}/{{notebook}}/{{run}}/manifest-{{digest}}.json",
    wildcard_constraints:
        notebook=r"(?!0[3-8]_)\d\d_\w+",
    params:
        parameters=lambda w: PLAN[w.notebook, w.run].parameters,
    shell:
        "{sys.executable} -m lib.runs execute {PROFILE} {wildcards.notebook} {wildcards.run}"


# A rule of its own, so that a cluster's profile can give these runs another partition, time or number of GPUs.
# The other profiles are for machines without one.
use rule notebook as gpu_notebook with:
    wildcard_constraints:
        notebook=r"0[3-7]_\w+",
    resources:
        gpu=int(PROFILE == "paper"),


rule tables:
    """Make the tables from every finished run; `make` always makes them again."""
    input:
        sources,
        [manifest(planned) for (name, _), planned in PLAN.items() if name < TABLES],
    output:
        f"outputs/{PROFILE}/{{notebook}}/{{run}}/manifest-{{digest}}.json",
    wildcard_constraints:
        notebook=TABLES,
    shell:
        "{sys.executable} -m lib.runs execute {PROFILE} {wildcards.notebook} {wildcards.run}"
