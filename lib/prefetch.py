"""Everything that a profile's runs read from elsewhere, into the caches: `python -m lib.prefetch paper`.

On a machine with network; compute nodes then need none. `--check` downloads nothing. Data are checked against the
hashes in `lib/data/registry.txt`, models, at the commits in their run files, against the hash by which the hub names
each file.
"""

import argparse
import hashlib
import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from lib import provenance, runs
from lib.data import FILES, fetch, missing_files
from lib.paths import ROOT, data_cache
from lib.wheels import WHEELS, wheel_folder

READ = (".json", ".txt", ".model")  # configs, vocabularies, merges; weights are chosen by `needed`
SHARED = {"public", "release"}  # parameter values that stand for the public data
OFFLINE = "HF_HUB_OFFLINE"


@dataclass(frozen=True)
class HubModel:
    """A model on the hub at a commit, or at a branch that moves."""

    name: str
    revision: str

    def __str__(self) -> str:
        return f"{self.name} @ {self.revision[:12]}"


@dataclass(frozen=True)
class Needs:
    """What the runs of a profile read: public files, models of the hub, packages with weights, folders you prepare."""

    files: tuple[str, ...]
    models: tuple[HubModel, ...]
    wheels: tuple[str, ...]
    folders: tuple[str, ...]


def needs(planned: Iterable[runs.PlannedRun]) -> Needs:
    """Return what runs read: of a parameter with a sibling `<name>_revision`, the value is a model's name."""
    planned = list(planned)
    models: set[tuple[str, str]] = set()
    wheels: set[str] = set()
    for run in planned:
        for name, revision in run.parameters.items():
            if not name.endswith("_revision"):
                continue
            value = str(run.parameters[name.removesuffix("_revision")])
            kind, _, rest = value.partition(":")
            if rest and rest in WHEELS:  # wheel:smollm2, warm:minilm
                wheels.add(rest)
            elif revision:
                models.add((value, str(revision)))
    public = any(value in SHARED for run in planned for value in run.parameters.values() if isinstance(value, str))
    return Needs(
        tuple(sorted(FILES)) if public else (),
        tuple(HubModel(*pair) for pair in sorted(models)),
        tuple(sorted(wheels)),
        tuple(sorted({str(run.parameters["parts"]) for run in planned if run.parameters.get("parts")})),
    )


def needed(names: Iterable[str]) -> list[str]:
    """Return which files of a model's repository are read here.

    Configs and tokenizers; of the weights, folder by folder, safetensors or else PyTorch's, no other library's.

    Examples
    --------
    >>> needed(["config.json", "model.safetensors", "pytorch_model.bin", "tf_model.h5", "2_Dense/pytorch_model.bin"])
    ['2_Dense/pytorch_model.bin', 'config.json', 'model.safetensors']
    """
    paths = [PurePosixPath(name) for name in names]
    safe = {path.parent for path in paths if path.match("model*.safetensors")}
    return sorted(
        str(path)
        for path in paths
        if path.suffix in READ
        or path.match("model*.safetensors")
        or (path.match("pytorch_model*.bin") and path.parent not in safe)
    )


def cached(model: HubModel) -> tuple[Path, list[str]]:
    """Return a model's folder in the cache and what is wrong with it, file by file; asks no network.

    A file is wrong if it is missing or its bytes do not have the hash that the hub listed for it, the SHA-256 of
    weights, git's SHA-1 of everything else. The listing itself lies in the cache since the download.

    Raises
    ------
    FileNotFoundError
        If the cache holds no such model, or no listing of this commit.
    """
    from huggingface_hub import get_cached_repo_tree, try_to_load_from_cache
    from huggingface_hub.errors import CachedRepoTreeNotFoundError

    try:
        listed = {file.path: file for file in get_cached_repo_tree(model.name, revision=model.revision)}
    except CachedRepoTreeNotFoundError:
        raise FileNotFoundError("not in the cache") from None
    config = try_to_load_from_cache(model.name, "config.json", revision=model.revision)
    if not isinstance(config, str):
        raise FileNotFoundError("config.json is not in the cache")
    folder, wrong = Path(config).parent, []
    for name in needed(listed):
        path, file = folder / name, listed[name]
        if not path.exists():
            wrong.append(f"{name} is missing")
        elif (provenance.sha256(path) if file.lfs else _git_hash(path)) != (
            file.lfs.sha256 if file.lfs else file.blob_id
        ):
            wrong.append(f"{path.resolve()} is damaged: delete it")
    return folder, wrong


def _git_hash(path: Path) -> str:
    """Return the SHA-1 by which git names a file."""
    content = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def download(model: HubModel) -> Path:
    """Download what is needed of a model and return its snapshot's folder; what is there already stays."""
    from huggingface_hub import snapshot_download

    listed = snapshot_download(model.name, revision=model.revision, dry_run=True)
    files = needed(file.filename for file in listed)
    return Path(snapshot_download(model.name, revision=model.revision, allow_patterns=files))


def bytes_missing(model: HubModel) -> int:
    """Ask the hub how many bytes of a model are not in the cache yet."""
    from huggingface_hub import snapshot_download

    listed = {file.filename: file for file in snapshot_download(model.name, revision=model.revision, dry_run=True)}
    return sum(listed[name].file_size for name in needed(listed) if listed[name].will_download)


def prefetch(profile: str, check: bool = False) -> list[str]:
    """Bring a profile's data and models into the caches, print a line for each, and return what is still missing.

    Parameters
    ----------
    check : bool
        Only look; asks no network.

    Raises
    ------
    ValueError
        If there is no such profile.
    OSError
        If the disk of the model cache is too small for what is missing; nothing is downloaded then.
    """
    wanted = needs(runs.plan(profile))
    missing = [*_packages(wanted.wheels), *_data(wanted.files, check), *_folders(wanted.folders)]
    look = check or os.environ.get(OFFLINE) == "1" or not _room(wanted.models)
    for model in wanted.models:
        missing += _model(model, look)
    return missing


def _packages(wheels: Sequence[str]) -> list[str]:
    """Print and return packages with weights that are not installed."""
    missing = []
    for name in wheels:
        try:
            folder, state = wheel_folder(name), "there"
            size = _size(folder)
        except FileNotFoundError as error:
            size, state = 0, f"missing: {error}"
            missing.append(name)
        _line("package", name, size, state)
    return missing


def _data(names: Sequence[str], check: bool) -> list[str]:
    """Print one line for all public files and one for each that is missing; return those."""
    absent = set(missing_files(names)) if check else set()
    size, problems = 0, {}
    for name in names:
        if name in absent:
            problems[name] = "missing"
            continue
        try:
            size += fetch(name).stat().st_size
        except (OSError, ValueError) as error:
            problems[name] = str(error)
    if names:
        _line("data", f"{len(names) - len(problems)} of {len(names)} files", size, f"there, {data_cache()}")
    for name, problem in problems.items():
        _line("data", name, 0, problem)
    return list(problems)


def _folders(names: Sequence[str]) -> list[str]:
    """Print and return folders that nobody can download: they are made from data under other terms."""
    missing = [name for name in names if not any((ROOT / name).glob("*.part-*"))]
    for name in names:
        remedy = "missing: the README's 'Train a fill-mask model' says how to make it"
        _line("folder", name, _size(ROOT / name), remedy if name in missing else "there")
    return missing


def _room(models: Sequence[HubModel]) -> bool:
    """Refuse to begin what the disk cannot hold; return False, and say so, if the hub does not answer."""
    from huggingface_hub import constants
    from huggingface_hub.errors import DryRunError, HfHubHTTPError

    wanted = 0
    for model in models:
        try:
            wanted += bytes_missing(model)
        except (DryRunError, HfHubHTTPError) as error:
            if isinstance(error, HfHubHTTPError) or isinstance(error.__cause__, HfHubHTTPError):
                continue  # an answer, told beside the model's name when its turn comes
            print(f"{constants.ENDPOINT} does not answer, no model is fetched: {_first_line(error)}", file=sys.stderr)
            return False
    cache = Path(constants.HF_HUB_CACHE)
    disk = next(folder for folder in (cache, *cache.parents) if folder.exists())
    free = shutil.disk_usage(disk).free
    if wanted > free:
        raise OSError(
            f"{_readable(wanted)} of models are missing and {disk} has {_readable(free)} free: set HF_HOME to a folder "
            "on a larger disk, here and on the machines that run the profile"
        )
    return True


def _model(model: HubModel, look: bool) -> list[str]:
    """Print one line for a model, downloaded unless only looked for; return its name if it is not all there."""
    size = 0
    try:
        if not look:
            download(model)
        folder, wrong = cached(model)
        size = _size(folder)
        state = "; ".join(wrong) or f"there, commit {folder.name[:12]}"
    except (OSError, ValueError) as error:
        state = f"missing: {_first_line(error)}"
        wrong = [state]
    _line("model", str(model), size, state)
    return [str(model)] if wrong else []


def _size(folder: Path) -> int:
    """Return the bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _readable(size: int) -> str:
    """Return bytes as GB or MB."""
    return f"{size / 1e9:,.1f} GB" if size >= 1e9 else f"{size / 1e6:,.1f} MB"


def _first_line(error: Exception) -> str:
    """Return the first line of an error that has many."""
    return str(error).splitlines()[0]


def _line(kind: str, name: str, size: int, state: str) -> None:
    """Print one line of the list."""
    print(f"{kind:8} {name:70} {_readable(size) if size else '':>10}  {state}", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Fetch or check a profile; return 0 if everything is there."""
    parser = argparse.ArgumentParser(prog="python -m lib.prefetch", description=__doc__.splitlines()[0])
    parser.add_argument("profile")
    parser.add_argument("--check", action="store_true", help="only look, without network")
    chosen = parser.parse_args(arguments)
    try:
        missing = prefetch(chosen.profile, chosen.check)
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if missing:
        print(f"{len(missing)} missing: PROFILE={chosen.profile} cannot run without network yet", file=sys.stderr)
        return 1
    print(f"Everything is there: PROFILE={chosen.profile} runs without network, with {OFFLINE}=1")
    return 0


if __name__ == "__main__":
    sys.exit(main())
