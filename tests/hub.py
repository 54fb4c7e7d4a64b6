"""A model hub on this machine: as much of the hub's interface as huggingface_hub asks for models, from a dict."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

Repositories = Mapping[str, Mapping[str, bytes]]


def commit_of(files: Mapping[str, bytes]) -> str:
    """Return 40 hex digits that stand for a state of a repository."""
    return hashlib.sha1(b"".join(name.encode() + content for name, content in sorted(files.items()))).hexdigest()


@contextmanager
def served(repositories: Repositories) -> Iterator[tuple[str, list[str]]]:
    """Serve repositories of files; yield the address and the list of files that were downloaded.

    Weights are named by their SHA-256, as files in large-file storage are, everything else by git's SHA-1.
    """
    downloaded: list[str] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Hub, repositories, downloaded))
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", downloaded
    finally:
        server.shutdown()
        server.server_close()


class _Hub(BaseHTTPRequestHandler):
    """Answers for a model's description, the list of its files, and each file."""

    def __init__(self, repositories: Repositories, downloaded: list[str], *arguments):
        self.repositories, self.downloaded = repositories, downloaded
        super().__init__(*arguments)

    def do_HEAD(self):  # noqa: N802
        self._answer()

    def do_GET(self):  # noqa: N802
        self._answer()

    def _answer(self) -> None:
        path = self.path.split("?")[0].strip("/")
        name = next((name for name in self.repositories if name in path), None)
        if name is None:
            return self._send(404, b"", {"X-Error-Code": "RepoNotFound"})
        files = self.repositories[name]
        commit = {"X-Repo-Commit": commit_of(files)}
        if path.startswith(f"api/models/{name}/tree/"):
            return self._send(200, json.dumps([_entry(*item) for item in files.items()]).encode(), commit)
        if path.startswith("api/models/"):
            return self._send(200, json.dumps({"id": name, "sha": commit_of(files), "siblings": []}).encode(), commit)
        file = path.removeprefix(f"{name}/resolve/").partition("/")[2]
        if file not in files:
            return self._send(404, b"", {"X-Error-Code": "EntryNotFound"})
        if self.command == "GET":
            self.downloaded.append(file)
        entry = _entry(file, files[file])
        return self._send(200, files[file], commit | {"ETag": f'"{entry.get("lfs", entry)["oid"]}"'})

    def _send(self, status: int, content: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for key, value in ({"Content-Length": str(len(content))} | dict(headers)).items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def log_message(self, *arguments):
        """Keep quiet."""


def _entry(name: str, content: bytes) -> dict:
    """Return what the hub lists of a file."""
    git = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
    entry = {"type": "file", "path": name, "size": len(content), "oid": git}
    if name.endswith((".safetensors", ".bin", ".h5")):
        entry["lfs"] = {"oid": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 134}
    return entry
