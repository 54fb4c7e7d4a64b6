"""Every public file by name: address with its commit and SHA-256 (`registry.txt`), and where it lies in the cache.

`fetch` is what the loaders call. With `OPENPI_DATA` set it only ever reads that folder; otherwise pooch downloads
into the user's cache, to a temporary file that is checked and then moved.
"""

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import pooch

from lib import provenance
from lib.data import convert
from lib.paths import data_cache

_REGISTRY = pooch.create(path=data_cache(), base_url="")
_REGISTRY.load_registry(Path(__file__).with_name("registry.txt"))

#: name in the cache -> (address, SHA-256)
FILES: dict[str, tuple[str, str]] = {
    name: (_REGISTRY.urls[name], known.removeprefix("sha256:")) for name, known in _REGISTRY.registry.items()
}


def fetch(name: str) -> Path:
    """Return a public file, downloaded into the cache where allowed, and always of the pinned SHA-256.

    Parameters
    ----------
    name : str
        Name in the cache, `openpi-c/test.jsonl`; see `FILES`.

    Raises
    ------
    KeyError
        If no such file is listed.
    FileNotFoundError
        If `OPENPI_DATA` is set and the file is not there: nothing is downloaded then.
    ValueError
        If the file is empty, or its hash is not the pinned one.
    ConnectionError
        If the download fails; nothing half-downloaded stays.
    """
    if name not in FILES:
        raise KeyError(f"no public file is called {name!r}; known: {', '.join(sorted(FILES))}")
    address, expected = FILES[name]
    path = data_cache() / name
    if not path.exists():
        if os.environ.get("OPENPI_DATA"):
            raise FileNotFoundError(
                f"{path} does not exist and OPENPI_DATA is set, so nothing is downloaded. Copy the file there from "
                f"{address}, or unset OPENPI_DATA"
            )
        _download(name, address, path, expected)
    check(path, expected)
    return path


def check(path: Path, expected: str) -> None:
    """Refuse an empty file or one whose SHA-256 is not `expected`."""
    if path.stat().st_size == 0:
        raise ValueError(f"{path} is empty (0 bytes): delete it and fetch it again")
    if (actual := provenance.sha256(path)) != expected:
        raise ValueError(
            f"{path} is not the pinned file: expected SHA-256 {expected}, got {actual}. "
            "Delete it and fetch it again; data of your own is read by the loaders' root= argument"
        )


def missing_files(names: Iterable[str] = FILES) -> list[str]:
    """Return the names that are not in the cache."""
    return [name for name in names if not (data_cache() / name).exists()]


def _download(name: str, address: str, path: Path, expected: str) -> None:
    """Download one file through pooch, converting derived ones; on any error nothing is left behind."""
    converter = convert.CONVERTERS.get(name.split("/")[0])
    try:
        pooch.retrieve(
            address,
            known_hash=f"sha256:{expected}",
            fname=path.name,
            path=path.parent,
            downloader=_converting(name, converter) if converter else None,
            progressbar=False,
        )
    except ValueError as error:  # pooch's message for a wrong hash has both hashes
        raise ValueError(f"{name} from {address}: {error}") from error
    except OSError as error:  # requests' errors are OSErrors
        raise ConnectionError(
            f"{name} could not be downloaded from {address} ({error}). With no network, set OPENPI_DATA to a folder "
            f"that holds {name}"
        ) from error


def _converting(name: str, converter: Callable[[str, Path, Path], None]) -> Callable:
    """Return a pooch downloader that converts what it downloaded; pooch then checks the result's hash."""

    def downloader(address: str, output: str, owner: object) -> None:
        source = Path(f"{output}.source")
        try:
            pooch.HTTPDownloader()(address, str(source), owner)
            converter(name, source, Path(output))
        finally:
            source.unlink(missing_ok=True)

    return downloader
