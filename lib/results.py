"""Runs that are finished or are not: atomic files, and a manifest written last.

A run writes into its folder through `Run`; its last act is the manifest. A folder without a manifest for the
parameters at hand is not finished, whatever else lies in it.
"""

import hashlib
import json
import math
import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from lib import locks, provenance
from lib.paths import cannot_write, run_dir, shown

REPORT = "report.html"


class Run:
    """One run of one notebook: where it writes, and the manifest that declares it finished.

    Parameters
    ----------
    notebook : str
        The notebook's name without its suffix, `01_data_audit`.
    parameters : mapping
        Every declared parameter with the value in force; `profile` and `run` name the folder.

    Notes
    -----
    Starting a run removes the manifest of the one before, so that a run which stops halfway never looks finished, and
    half files of one that was killed. Until it finishes or its process ends, no other process can start the same run.
    Started in several processes, only the main one writes here; what the others write is thrown away.
    """

    def __init__(self, notebook: str, parameters: Mapping[str, object]):
        self.notebook = notebook
        self.parameters = dict(parameters)
        self.folder = run_dir(str(parameters["profile"]), notebook, str(parameters["run"]))
        self.started = time.monotonic()
        self.files: dict[str, str] = {}
        self.thrown_away = None if is_main_process() else tempfile.TemporaryDirectory()
        if self.thrown_away:
            return
        self._lock = self.folder.parents[1] / ".locks" / f"{notebook}-{self.folder.name}.lock"
        locks.hold(self._lock, locks.PATIENCE)
        self.folder.mkdir(parents=True, exist_ok=True)
        for pattern in ("manifest-*.json", ".*.partial"):  # the second: of an attempt that was killed
            for old in self.folder.glob(pattern):
                old.unlink()

    def save(self, name: str, text: str) -> Path:
        """Write a text file of this run atomically and note it for the manifest."""
        with self.write(name) as temporary:
            temporary.write_text(text, encoding="utf-8")
        return self.path(name)

    def path(self, name: str) -> Path:
        """Return where a file goes: tables, figures and report into the profile's folder, the rest into the run's."""
        if self.thrown_away:
            return Path(self.thrown_away.name) / name
        shared = name.startswith(("tables/", "figures/")) or name == REPORT
        return (self.folder.parent.parent if shared else self.folder) / name

    @contextmanager
    def write(self, name: str):
        """Yield a temporary path beside `name`; it is renamed when the block ends without an error."""
        path = self.path(name)
        with atomic(path) as temporary:
            yield temporary
        self.files[name] = provenance.sha256(path)

    def scratch(self, name: str) -> Path:
        """Return a folder for what is not kept (checkpoints); other parameters have another one."""
        digest = manifest_name(self.parameters).removeprefix("manifest-").removesuffix(".json")
        return self.folder / f"{name}-{digest}"

    def save_figure(self, name: str, figure) -> Path:
        """Write a Matplotlib figure as `name`.png and `name`.pdf without dates inside, so that reruns are equal."""
        for suffix, metadata in (("png", {"Software": None}), ("pdf", {"CreationDate": None})):
            with self.write(f"{name}.{suffix}") as temporary:
                figure.savefig(temporary, format=suffix, dpi=150, bbox_inches="tight", metadata=metadata)
        return self.path(f"{name}.png")

    def save_metrics(self, scores: Mapping[str, object], **more: object) -> Path:
        """Write `metrics.json`: the scores, what was said beside them, and where they come from."""
        content = {
            "notebook": self.notebook,
            "parameters": self.parameters,
            "scores": scores,
            **more,
            "code": provenance.code_version(),
            "versions": provenance.versions(),
            "machine": provenance.machine(),
            "wall_time_seconds": round(time.monotonic() - self.started, 1),
        }
        return self.save("metrics.json", to_json(content))

    def finish(self) -> Path:
        """Write the manifest, the run's parameters and the SHA-256 of its files; then remove its checkpoints."""
        path = self.folder / manifest_name(self.parameters)
        if self.thrown_away:
            return path
        content = {"notebook": self.notebook, "parameters": self.parameters, "files": self.files}
        with atomic(path) as temporary:
            temporary.write_text(to_json(content), encoding="utf-8")
        for left_over in self.folder.glob("checkpoints-*"):
            shutil.rmtree(left_over, ignore_errors=True)
        locks.release(self._lock)
        return path


def is_main_process() -> bool:
    """Return whether this process writes: all do but the further ones of `torchrun` or `accelerate launch`."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def atomic(path: Path):
    """Yield a temporary path beside `path` and rename it at the end; on an error nothing is replaced.

    Raises
    ------
    OSError
        If the folder cannot be written: `lib.paths.cannot_write`.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        raise cannot_write(path, error) from error
    finally:
        with suppress(OSError):  # the error above says more
            temporary.unlink(missing_ok=True)


def manifest_name(parameters: Mapping[str, object]) -> str:
    """Return the manifest's file name: it holds a digest of the parameters, so other parameters miss the file."""
    canonical = json.dumps(dict(parameters), sort_keys=True, ensure_ascii=True)
    return f"manifest-{hashlib.sha256(canonical.encode()).hexdigest()[:10]}.json"


def load(profile: str, notebook: str, run: str) -> dict | None:
    """Return the metrics of a finished run, or None where that run has not been finished.

    Raises
    ------
    ValueError
        If the run is finished but its `metrics.json` is missing, damaged or no longer the file that it wrote.
    """
    folder = run_dir(profile, notebook, run)
    manifests = sorted(folder.glob("manifest-*.json"))
    if not manifests:
        return None
    remedy = f"run it again: make reproduce PROFILE={profile} after removing {shown(folder)}"
    path = folder / "metrics.json"
    manifest = _read_json(manifests[-1], remedy)
    if not path.exists():
        raise ValueError(f"{shown(path)} is missing although the run is marked as finished; {remedy}")
    expected = manifest.get("files", {}).get("metrics.json")
    if expected != (actual := provenance.sha256(path)):
        raise ValueError(
            f"{shown(path)} is not the file that its run wrote (SHA-256 {actual[:12]}..., manifest says "
            f"{str(expected)[:12]}...); {remedy}"
        )
    return _read_json(path, remedy)


def finished_runs(profile: str, notebook: str) -> list[str]:
    """Return the names of the finished runs of a notebook, sorted."""
    base = run_dir(profile, notebook, "any").parent
    return sorted({manifest.parent.name for manifest in base.glob("*/manifest-*.json")})


def to_json(content: Mapping) -> str:
    """Return JSON: NumPy values as plain numbers and lists, floats in full, NaN as null; a line a key, two levels."""
    return _lines(_plain(content), depth=2) + "\n"


def _lines(value: object, depth: int, indent: str = "") -> str:
    """Render a value with one line a key down to `depth`, so that thousands of scores stay on few lines."""
    if not isinstance(value, dict) or not value or depth == 0:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    inner = indent + " "
    items = (
        f"{inner}{json.dumps(key, ensure_ascii=False)}: {_lines(item, depth - 1, inner)}" for key, item in value.items()
    )
    return "{\n" + ",\n".join(items) + f"\n{indent}}}"


def _plain(value: object) -> object:
    """Return `value` built from plain Python containers and numbers only."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _read_json(path: Path, remedy: str) -> dict:
    """Read a JSON object, or say which file is damaged and what to do."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{shown(path)} cannot be read ({error}); {remedy}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{shown(path)} holds a {type(content).__name__}, expected an object; {remedy}")
    return content
