"""What produced a number: signatures, code version, package versions, machine."""

import hashlib
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path

from lib import __version__
from lib.paths import ROOT

PACKAGES = (
    "matplotlib", "nltk", "numpy", "pandas", "rapidfuzz", "scikit-learn", "scipy", "sentence-transformers",
    "tokenizers", "torch", "transformers",
)  # fmt: skip


def signature(name: str, **settings: object) -> str:
    """Return one line that names everything which moves a number, code version last.

    Examples
    --------
    >>> signature("openpi_f1", match="rouge_l", n=345).rsplit("|", 1)[0]
    'openpi_f1|match:rouge_l|n:345'
    """
    parts = [name, *(f"{key}:{_plain(value)}" for key, value in settings.items())]
    return "|".join([*parts, f"v:{code_version()}"])


def extend(line: str, **settings: object) -> str:
    """Return a signature with more settings in it, code version still last.

    Examples
    --------
    >>> extend("openpi_f1|match:bleu|v:0.1.0", data="openpi-c/test")
    'openpi_f1|match:bleu|data:openpi-c/test|v:0.1.0'
    """
    head, version = line.rsplit("|v:", 1)
    return "|".join([head, *(f"{key}:{_plain(value)}" for key, value in settings.items()), f"v:{version}"])


def code_version() -> str:
    """Return `version+commit`, with `-dirty` when the working tree differs; new files count, outputs do not."""
    try:
        commit = _git("rev-parse", "--short", "HEAD")
        # A run writes its own results while it runs: they must not make it dirty.
        dirty = _git("status", "--porcelain", "--", ":/", ":(exclude,top)outputs")
    except (OSError, subprocess.CalledProcessError):
        return __version__
    return f"{__version__}+{commit}" + ("-dirty" if dirty else "")


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that move numbers; an absent package is left out."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def machine() -> dict[str, object]:
    """Return processor, core count and platform of this machine (no host name)."""
    return {"processor": _processor(), "cores": os.cpu_count(), "platform": f"{platform.system()} {platform.machine()}"}


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file as 64 hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _processor() -> str:
    """Return the processor's name as the system gives it."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _git(*arguments: str) -> str:
    """Return the output of a git command in the project's folder."""
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def _plain(value: object) -> str:
    """Render a setting without the characters that separate the parts of a signature."""
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return text.replace("|", "/").replace(" ", "_")
