"""Checkpoints that a training can go on from (`last_whole`), and what to say when the disk holds no more (`room`)."""

import errno
import shutil
import zipfile
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError, safe_open
from transformers import TrainerState
from transformers.trainer import TRAINER_STATE_NAME

from lib.paths import cannot_write, shown


def last_whole(folder: Path) -> tuple[str, TrainerState] | tuple[None, None]:
    """Return the last checkpoint from which a training can go on, and its state; None where there is none.

    Those after it were cut short by a kill, a full disk or a power cut, or ask for a best one that was: they are
    removed, else each would count as one of the two that are kept.
    """
    for checkpoint in sorted(folder.glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]), reverse=True):
        try:
            state = TrainerState.load_from_json(checkpoint / TRAINER_STATE_NAME)  # it is written last
            for needed in {checkpoint, Path(state.best_model_checkpoint or checkpoint)}:
                _check(needed)
            return str(checkpoint), state
        except (OSError, ValueError, SafetensorError) as error:
            print(f"{shown(checkpoint)} is of no use and removed: {error}", flush=True)
            shutil.rmtree(checkpoint, ignore_errors=True)
    return None, None


def _check(folder: Path) -> None:
    """Raise if a weight file is missing or any tensor file was cut short; the tensors themselves are not read."""
    weights = list(folder.glob("*.safetensors"))
    if not weights:
        raise ValueError(f"{folder.name} has no weights")
    for path in weights:
        with safe_open(path, "pt"):  # compares the file's size with its header
            pass
    for path in [*folder.glob("*.pt"), *folder.glob("*.pth")]:
        if not zipfile.is_zipfile(path):  # a zip file's directory is at its end
            raise ValueError(f"{folder.name}/{path.name} was cut short")


@contextmanager
def room(folder: Path, parameters: int):
    """Say so where a training stops because its disk cannot hold one more checkpoint: the libraries' errors do not."""
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:
        size = 12 * parameters  # the weights and AdamW's two moments, in fp32
        if folder.exists() and shutil.disk_usage(folder).free < size:
            full = OSError(errno.ENOSPC, f"a checkpoint of about {size / 1e6:,.1f} MB does not fit ({error})")
            raise cannot_write(folder, full) from error
        raise
