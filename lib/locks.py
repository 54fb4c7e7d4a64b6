"""One writer a place: locks that the system drops when their process dies, and runs that end with their workflow."""

import os
import socket
import sys
import threading
import time
from pathlib import Path

from filelock import FileLock, Timeout

from lib.paths import cannot_write, shown

WORKFLOW = "OPENPI_WORKFLOW"  # host and process id of the Snakemake that started a run
PATIENCE = 15.0  # seconds for a run whose workflow was killed to notice that and end
_held: dict[Path, FileLock] = {}


def hold(path: Path, patience: float = 0.0) -> None:
    """Make this process the only one that holds a lock file, until it ends or calls `release`.

    A process that holds it already may take it again. The file stays and means nothing by itself.

    Parameters
    ----------
    path : Path
        The lock's file; its name says in errors what is locked.
    patience : float
        Seconds to wait for another process.

    Raises
    ------
    RuntimeError
        If another process holds it.
    OSError
        If the file cannot be written: `lib.paths.cannot_write`.
    """
    if path in _held:
        return
    lock = FileLock(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=patience)
    except Timeout:
        raise RuntimeError(
            f"{path.stem} is in the hands of another process ({shown(path)} is locked): wait for it or stop it, then "
            "start again"
        ) from None
    except OSError as error:
        raise cannot_write(path.parent, error) from error
    _held[path] = lock


def release(path: Path) -> None:
    """Let others write again; nothing happens where this process holds no such lock."""
    if lock := _held.pop(path, None):
        lock.release()


def announce_workflow() -> None:
    """Tell the runs that this process starts whom they belong to."""
    os.environ[WORKFLOW] = f"{socket.gethostname()}:{os.getpid()}"


def end_with_workflow(poll: float = 1.0) -> None:
    """End this process when the workflow that started it is gone, however it was killed; its kernel follows by itself.

    Nothing happens to a run that was started by hand, or that a cluster runs on another machine than its workflow.
    """
    host, _, pid = os.environ.get(WORKFLOW, "").rpartition(":")
    if host == socket.gethostname():
        threading.Thread(target=_end_after, args=(int(pid), poll), daemon=True).start()


def _end_after(pid: int, poll: float) -> None:
    """Wait until a process is gone, then end this one at once: nothing may be written any more."""
    while True:
        time.sleep(poll)
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            print(f"error: the workflow (process {pid}) is gone, so this run ends too", file=sys.stderr, flush=True)
            os._exit(1)
        except PermissionError:
            pass  # somebody else's process: it is there
