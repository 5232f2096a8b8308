"""What is put around a call, and that nobody notices."""

from __future__ import annotations

import inspect
import pickle
import sys
import traceback
import warnings
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from hangbisect.rank.watched.wrapping import put_around

LIBRARY = '''
import warnings
def load(path, *, fast=True):
    """Loads."""
    if path == "odd":
        warnings.warn("odd", stacklevel=2)
    if path == "bad":
        raise ValueError(path)
    return path, fast
class Model:
    def __init__(self, size=1):
        self.size = size
    @classmethod
    def make(cls, size):
        return cls(size)
    @staticmethod
    def probe():
        return 1
class Small(Model):
    def __init__(self):
        super().__init__(0)
'''


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A package that offers what a module of it defines."""
    module, package = ModuleType("lib_here.inner"), ModuleType("lib_here")
    exec(compile(LIBRARY, "/site-packages/lib_here/inner.py", "exec"), vars(module))
    monkeypatch.setitem(sys.modules, "lib_here", package)
    monkeypatch.setitem(sys.modules, "lib_here.inner", module)
    return module


class Calls:
    """What was begun and ended."""

    def __init__(self) -> None:
        self.begun: list[tuple[Any, ...]] = []
        self.ended: list[BaseException | None] = []

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self.begun.append(args)
        return self.ended.append


def test_a_function_is_the_same_to_whoever_looks(library: Any) -> None:
    before, calls = library.load, Calls()
    assert put_around(library, "load", calls.begin) is not None
    assert library.load("x") == ("x", True)
    assert (calls.begun, calls.ended) == ([("x",)], [None])
    assert inspect.signature(library.load) == inspect.signature(before)
    assert (library.load.__name__, library.load.__doc__) == ("load", "Loads.")
    assert library.load.__module__ == before.__module__
    assert pickle.loads(pickle.dumps(library.Small())).size == 0


def test_everything_is_put_back(library: Any) -> None:
    before = dict(vars(library)), dict(vars(library.Model))
    undone = [
        put_around(library, name, Calls().begin)
        for name in ("load", "Model.__init__", "Model.make", "Model.probe")
    ]
    sys.modules["lib_here"].load = library.load  # type: ignore[attr-defined]  # as packages do
    for undo in undone:
        assert undo is not None
        undo()
    assert (dict(vars(library)), dict(vars(library.Model))) == before
    assert vars(sys.modules["lib_here"])["load"] is library.load


def test_methods_keep_their_kind_and_subclasses_their_classes(library: Any) -> None:
    calls = Calls()
    for name in ("Model.__init__", "Model.make", "Model.probe"):
        assert put_around(library, name, calls.begin) is not None
    small = library.Small()
    assert isinstance(small, library.Model)
    assert type(library.Model.make(3)) is library.Model
    assert library.Small.make.__self__ is library.Small
    assert library.Model.probe() == 1
    assert len(calls.ended) == 4


def test_what_another_version_does_not_have_is_left(library: Any) -> None:
    assert put_around(library, "save", Calls().begin) is None
    assert put_around(library, "Other.make", Calls().begin) is None
    assert put_around(library, "Small.make", Calls().begin) is None  # inherited


def test_an_error_goes_through_as_if_nobody_had_been_in_between(library: Any) -> None:
    def frames() -> list[str]:
        try:
            library.load("bad")
        except ValueError as error:
            return [frame.name for frame in traceback.extract_tb(error.__traceback__)]
        return []

    plain, calls = frames(), Calls()
    put_around(library, "load", calls.begin)
    assert frames() == plain
    assert isinstance(calls.ended[0], ValueError)


def test_a_warning_leads_to_the_line_of_the_script(library: Any) -> None:
    put_around(library, "load", Calls().begin)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        library.load("odd")
    assert [warning.filename for warning in caught] == [__file__]
