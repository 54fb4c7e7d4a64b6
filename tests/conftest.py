"""Shared by all tests: no network but this machine, and real data only where OPENPI_DATA names it."""

import os
import socket
from pathlib import Path

import pytest

from lib.paths import SAMPLE
from tests.workflow import copy_project


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    """Refuse connections to other machines: nothing may ask a hub or a server by accident."""
    connect = socket.socket.connect

    def guarded(self, address):
        if self.family != socket.AF_UNIX and address[0] not in {"127.0.0.1", "::1", "localhost"}:
            raise OSError(f"a test tried to reach {address}")
        return connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", guarded)


def pytest_collection_modifyitems(config, items):
    """Skip the real-data tests where there is no real data, saying why."""
    if os.environ.get("OPENPI_DATA"):
        return
    skip = pytest.mark.skip(reason="OPENPI_DATA is not set: set it to the folder of the public data")
    for item in items:
        if "real_data" in item.keywords:
            item.add_marker(skip)


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    """Return an empty folder that OPENPI_DATA names."""
    folder = tmp_path / "cache"
    folder.mkdir()
    monkeypatch.setenv("OPENPI_DATA", str(folder))
    return folder


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """Return a copy of the project for the tests of a file."""
    return copy_project(tmp_path_factory.mktemp("project"))


@pytest.fixture
def sample() -> Path:
    """Return the bundled sample's folder."""
    return SAMPLE


@pytest.fixture(scope="session")
def clusterer():
    """Return the MiniLM clusterer, loaded once."""
    from lib.metrics import EmbeddingClusterer

    return EmbeddingClusterer()
