"""From parameter files to finished runs: `plan`, `resolve` and `execute`.

A run is a file, `params/<profile>/<notebook>/<run>.yaml`; `params/<profile>/common.yaml` holds what all runs of a
profile share. Names and types are checked against the cell tagged `parameters` of the notebook before anything
starts. Papermill does the running, Snakemake decides what runs.
"""

import argparse
import ast
import difflib
import logging
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import yaml

from lib import locks, results
from lib.paths import NOTEBOOKS, PARAMS, cannot_write, run_dir, shown

TYPES = {"str": str, "int": int, "float": float, "bool": bool}


@dataclass(frozen=True)
class Parameter:
    """A declared parameter: its type's name, its default and its help text."""

    type: str
    default: object
    help: str


@dataclass(frozen=True)
class PlannedRun:
    """A run with every parameter resolved."""

    notebook: str
    run: str
    parameters: dict[str, object]

    @property
    def manifest(self) -> Path:
        """Return the file that exists when this run has finished with these parameters."""
        profile = str(self.parameters["profile"])
        return run_dir(profile, self.notebook, self.run) / results.manifest_name(self.parameters)

    @property
    def reads(self) -> list[tuple[str, str]]:
        """Return notebook and run of every parameter that names another run's folder, `outputs/...`."""
        start = f"outputs/{self.parameters['profile']}/"
        values = [value for value in self.parameters.values() if isinstance(value, str) and value.startswith(start)]
        return [tuple(value.removeprefix(start).split("/")[:2]) for value in values]


def plan(profile: str) -> list[PlannedRun]:
    """Return every run of a profile, in the notebooks' order, after checking all of its parameter files.

    Raises
    ------
    ValueError
        If there is no such profile, or a parameter file is wrong: names file, line, key and what was expected.
    """
    folder = PARAMS / profile
    known = sorted(path.parent.name for path in PARAMS.glob("*/common.yaml"))
    if profile not in known:
        raise ValueError(f"PROFILE={profile!r} does not exist; params/ has {', '.join(known)}")
    files = sorted(folder.glob("*/*.yaml"))
    if not files:
        raise ValueError(f"{shown(folder)} holds no run: add a file like {shown(folder)}/01_data_audit/audit.yaml")
    runs = [PlannedRun(path.parent.name, path.stem, resolve(profile, path.parent.name, path.stem)) for path in files]
    known_runs = {(planned.notebook, planned.run) for planned in runs}
    for planned in runs:
        for notebook, run in planned.reads:
            if (notebook, run) not in known_runs or notebook >= planned.notebook:
                raise ValueError(
                    f"{shown(folder)}/{planned.notebook}/{planned.run}.yaml reads outputs/{profile}/{notebook}/{run}, "
                    f"which no run of a lower notebook writes; runs: {', '.join(f'{n}/{r}' for n, r in known_runs)}"
                )
    return runs


def resolve(profile: str, notebook: str, run: str) -> dict[str, object]:
    """Return the value of every declared parameter: notebook default, then common.yaml, then the run's file."""
    parameters = declared(notebook)
    values = {name: parameter.default for name, parameter in parameters.items()}
    fixed = {"profile": profile, "run": run}
    for path in (PARAMS / profile / "common.yaml", PARAMS / profile / notebook / f"{run}.yaml"):
        for name, (line, value) in _read_flat_yaml(path).items():
            where = f"{shown(path)}, line {line}"
            if name in fixed and value != fixed[name]:
                raise ValueError(f"{where}: {name} is {value!r}, but the file's place says {fixed[name]!r}")
            if name not in parameters:
                close = difflib.get_close_matches(name, parameters, n=1)
                hint = f"; did you mean {close[0]!r}?" if close else ""
                raise ValueError(f"{where}: notebooks/{notebook}.ipynb declares no parameter {name!r}{hint}")
            values[name] = _typed(where, name, value, parameters[name])
    return values | fixed


def differences(profile: str, notebook: str) -> dict[str, dict[str, object]]:
    """Return, for each parameter in which a notebook's runs differ, its value by run."""
    found = {planned.run: planned.parameters for planned in plan(profile) if planned.notebook == notebook}
    names = [name for name in declared(notebook) if name != "run"]
    return {
        name: {run: parameters[name] for run, parameters in found.items()}
        for name in names
        if len({repr(parameters[name]) for parameters in found.values()}) > 1
    }


def declared(notebook: str) -> dict[str, Parameter]:
    """Return the parameters of a notebook's cell tagged `parameters`, in order.

    Raises
    ------
    ValueError
        If there is no such notebook or cell, or a parameter is untyped or not a plain literal.
    """
    import papermill

    path = NOTEBOOKS / f"{notebook}.ipynb"
    if not path.exists():
        raise ValueError(f"{shown(path)} does not exist; notebooks: {', '.join(notebook_names())}")
    found = {}
    for name, entry in papermill.inspect_notebook(str(path)).items():
        kind = entry["inferred_type_name"]
        try:
            default = ast.literal_eval(entry["default"])
        except (ValueError, SyntaxError):
            raise ValueError(
                f"{shown(path)}: parameter {name} = {entry['default']} is no plain literal; derive it below the cell"
            ) from None
        if TYPES.get(kind) is not type(default):
            raise ValueError(
                f"{shown(path)}: parameter {name}: {kind} = {default!r}; give it its type, one of {', '.join(TYPES)}"
            )
        found[name] = Parameter(kind, default, entry["help"].strip())
    if missing := {"profile", "run"} - found.keys():
        raise ValueError(f"{shown(path)}: no cell tagged `parameters` that declares {', '.join(sorted(missing))}")
    return found


def notebook_names() -> list[str]:
    """Return the numbered notebooks in order."""
    return sorted(path.stem for path in NOTEBOOKS.glob("[0-9][0-9]_*.ipynb"))


def start(notebook: str, namespace: Mapping[str, object]) -> results.Run:
    """Return the run that a notebook is about to make, with its declared parameters as they stand.

    Parameters
    ----------
    notebook : str
        The notebook's name without suffix.
    namespace : mapping
        Its `globals()`: papermill has injected values there, or a reader has edited them.
    """
    parameters = declared(notebook)
    if missing := [name for name in parameters if name not in namespace]:
        raise ValueError(f"run the parameters cell first: {', '.join(missing)} not set")
    values = {
        name: _typed(f"notebooks/{notebook}.ipynb", name, namespace[name], parameter)
        for name, parameter in parameters.items()
    }
    return results.Run(notebook, values)


def execute(profile: str, notebook: str, run: str) -> Path:
    """Run one notebook with papermill and return the manifest of the finished run.

    The executed notebook is written under a temporary name; `notebook.ipynb` is replaced only after every cell has
    run and the manifest is there. A failed one stays as `failed.ipynb` to be opened. Started by `torchrun`, every
    process runs the notebook, they share its trainings, and what all but the main one write is thrown away.

    Raises
    ------
    RuntimeError
        If a cell fails, is left out, or the notebook ends without its manifest: names the cell and the file.
    OSError
        If the notebook cannot be written: `lib.paths.cannot_write`.
    """
    import nbformat
    import papermill
    from papermill.exceptions import PapermillExecutionError
    from traitlets.config import Config

    planned = PlannedRun(notebook, run, resolve(profile, notebook, run))
    writes = results.is_main_process()
    folder = planned.manifest.parent if writes else Path(tempfile.mkdtemp())
    temporary, failed = folder / ".notebook.partial.ipynb", folder / "failed.ipynb"
    logging.getLogger("papermill").setLevel(logging.ERROR)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        failed.unlink(missing_ok=True)
        executed = papermill.execute_notebook(
            str(NOTEBOOKS / f"{notebook}.ipynb"), str(temporary), parameters=planned.parameters,
            kernel_name="python3", progress_bar=False, cwd=str(NOTEBOOKS),
            # Else every run's log warns that the kernel talks over TCP without encryption.
            config=Config(KernelManager=Config(transport_encryption="auto")),
        )  # fmt: skip
        skipped = [c for c in executed.cells if c.cell_type == "code" and c.source.strip() and not c.execution_count]
        if skipped:
            raise RuntimeError(f"{len(skipped)} cells did not run; the first: {skipped[0].source.splitlines()[0]}")
        if writes and not planned.manifest.exists():
            raise RuntimeError("the notebook ended without run.finish(): no manifest for these parameters")
    except PapermillExecutionError as error:
        os.replace(temporary, failed)
        raise RuntimeError(
            f"{notebook}/{run}: cell {error.exec_count} failed: {error.ename}: {error.evalue}\nOpen {shown(failed)}"
        ) from error
    except RuntimeError as error:
        os.replace(temporary, failed)
        raise RuntimeError(f"{notebook}/{run}: {error}\nOpen {shown(failed)}") from error
    except OSError as error:
        raise cannot_write(Path(error.filename or temporary), error) from error
    finally:
        with suppress(OSError):  # the error above says more
            temporary.unlink(missing_ok=True)
    if not writes:
        shutil.rmtree(folder)
        return planned.manifest
    _scrub(executed)
    with results.atomic(folder / "notebook.ipynb") as target:
        nbformat.write(executed, target)
    return planned.manifest


def _scrub(executed) -> None:
    """Drop what papermill notes of this machine's folders and clock, so that committed notebooks show results only."""
    for key in ("input_path", "output_path", "start_time", "end_time", "environment_variables"):
        executed.metadata.get("papermill", {}).pop(key, None)
    for cell in executed.cells:
        cell.metadata.pop("papermill", None)
        cell.metadata.pop("execution", None)


def _read_flat_yaml(path: Path) -> dict[str, tuple[int, object]]:
    """Return name -> (line, value) of a YAML file of scalars."""
    if not path.exists():
        raise ValueError(f"{shown(path)} does not exist")
    text = path.read_text(encoding="utf-8")
    try:
        node, content = yaml.compose(text, yaml.SafeLoader), yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"{shown(path)} is no YAML: {error}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ValueError(f"{shown(path)}: expected lines `name: value`, got a {type(content).__name__}")
    lines: dict[str, int] = {}
    for key, value in node.value:
        line = key.start_mark.line + 1
        if key.value in lines:
            raise ValueError(
                f"{shown(path)}, line {line}: {key.value!r} stands twice, first in line {lines[key.value]}"
            )
        if not isinstance(value, yaml.ScalarNode):
            raise ValueError(f"{shown(path)}, line {line}: {key.value!r} is no scalar; a run file is flat")
        lines[key.value] = line
    return {name: (lines[name], value) for name, value in content.items()}


def _typed(where: str, name: str, value: object, parameter: Parameter) -> object:
    """Return a value of the declared type; whole numbers and NumPy scalars are converted, nothing else is."""
    if hasattr(value, "item") and not isinstance(value, str):
        value = value.item()
    if isinstance(value, Path):
        value = str(value)
    if parameter.type == "float" and type(value) is int:
        return float(value)
    if type(value) is not TYPES[parameter.type]:
        hint = ""
        if parameter.type == "float" and isinstance(value, str):
            hint = "; YAML reads 5e-5 as text: write 5.0e-5"
        raise ValueError(f"{where}: {name} is {value!r} ({type(value).__name__}), expected {parameter.type}{hint}")
    return value


def main(arguments: Sequence[str] | None = None) -> int:
    """Execute one run, or check the parameter files of a profile; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m lib.runs", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("execute", help="run one notebook with one parameter file")
    one.add_argument("profile")
    one.add_argument("notebook")
    one.add_argument("run")
    commands.add_parser("check", help="check all parameter files of a profile").add_argument("profile")
    chosen = parser.parse_args(arguments)
    started = time.monotonic()
    try:
        if chosen.command == "check":
            for planned in plan(chosen.profile):
                print(f"{planned.notebook}/{planned.run}: {len(planned.parameters)} parameters")
            return 0
        label = f"[{chosen.profile}] {chosen.notebook}/{chosen.run}"
        if results.is_main_process():
            print(f"{label}: started", flush=True)
        locks.end_with_workflow()
        manifest = execute(chosen.profile, chosen.notebook, chosen.run)
    except (OSError, RuntimeError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if results.is_main_process():
        print(f"{label}: finished in {time.monotonic() - started:.0f} s -> {shown(manifest.parent)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
