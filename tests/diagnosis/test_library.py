"""A library that lies on a disk which hangs must not take the verdict with it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import ModuleType

import pytest
from hangbisect.diagnosis import library


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """Forget before and after each test whether it could be loaded."""
    library.networkx.cache_clear()
    yield
    library.networkx.cache_clear()


def test_it_is_loaded_when_it_is_asked_for() -> None:
    found = library.networkx()
    assert isinstance(found, ModuleType)
    assert found.__name__ == "networkx"


def test_what_cannot_be_imported_is_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> ModuleType:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(library, "import_module", missing)
    assert library.networkx() is None


def test_what_does_not_load_in_time_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()

    def hangs(name: str) -> ModuleType:
        released.wait(60)
        return ModuleType(name)

    monkeypatch.setattr(library, "import_module", hangs)
    monkeypatch.setattr(library, "_LIMIT", 0.05)
    assert library.networkx() is None
    released.set()
    assert (
        library.networkx() is None
    )  # asked once: an import that hangs would hold us the next time
