"""Where everything lives: absolute, so that papermill, nbval and JupyterLab agree from any folder."""

import os
import shutil
from pathlib import Path

import pooch

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = ROOT / "notebooks"
PARAMS = ROOT / "params"
OUTPUTS = ROOT / "outputs"
SAMPLE = ROOT / "lib" / "sample"


def data_cache() -> Path:
    """Return the folder of the public data: `OPENPI_DATA` when set, else the user's cache folder."""
    chosen = os.environ.get("OPENPI_DATA", "")
    return Path(chosen).expanduser().resolve() if chosen else Path(pooch.os_cache("openpi-companion"))


def run_dir(profile: str, notebook: str, run: str) -> Path:
    """Return the folder into which one run of one notebook writes.

    Raises
    ------
    ValueError
        If a part is empty or would leave the outputs folder.
    """
    for name, part in {"profile": profile, "notebook": notebook, "run": run}.items():
        if not part or part in {".", ".."} or "/" in part or "\\" in part:
            raise ValueError(f"{name}={part!r} is not a plain folder name")
    return OUTPUTS / profile / notebook / run


def cannot_write(path: Path, error: OSError) -> OSError:
    """Return an error that names the place, how much its disk has left, and what to do."""
    there = next(folder for folder in (path, *path.parents) if folder.exists())
    left = f"{shutil.disk_usage(there).free / 1e6:,.1f} MB"
    return OSError(
        error.errno,
        f"cannot write {shown(path)}: {error.strerror or error}; its disk has {left} left. Free space or make the "
        "folder writable, then start again: what is finished stays",
    )


def shown(path: Path) -> str:
    """Return `path` relative to the project where possible, for messages and committed outputs."""
    path = Path(path).resolve()
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)
