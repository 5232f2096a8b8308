"""What is put around a call, and that nobody notices."""

from __future__ import annotations

import copy
import functools
import importlib
import inspect
import operator
import pickle
import sys
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest
from hangbisect.rank.function_patching import patch_with_step

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


def looks(function: Any) -> tuple[Any, ...]:
    """What somebody may see of a function without calling it."""
    code = function.__code__
    named = code.co_argcount + code.co_kwonlyargcount
    return (
        *(function.__name__, function.__qualname__, function.__module__, function.__doc__),
        *(function.__defaults__, function.__kwdefaults__, function.__closure__),
        *(function.__dict__, inspect.signature(function), code.co_varnames[:named]),
        *(code.co_name, code.co_firstlineno, code.co_freevars, inspect.getmodule(function)),
    )


@pytest.mark.parametrize("name", ["load", "Model.make", "Model.probe", "Small.__init__"])
def test_a_function_is_the_same_object_with_the_same_looks(library: Any, name: str) -> None:
    before, calls = operator.attrgetter(name)(library), Calls()
    plain = looks(getattr(before, "__func__", before))
    undo = patch_with_step(library, name, calls.begin)
    assert undo is not None
    for _ in ("while", "after"):
        now = operator.attrgetter(name)(library)
        assert getattr(now, "__func__", now) is getattr(before, "__func__", before)
        assert looks(getattr(now, "__func__", now)) == plain
        assert copy.deepcopy(before) == before
        assert pickle.loads(pickle.dumps(before)) == before
        undo()


def test_a_call_is_begun_and_ended_with_all_its_arguments(library: Any) -> None:
    held, calls = library.load, Calls()
    assert patch_with_step(library, "load", calls.begin) is not None
    assert held("x") == held(path="x") == library.load("x", fast=True) == ("x", True)
    assert (calls.begun, calls.ended) == ([("x",)] * 3, [None] * 3)
    with pytest.raises(
        TypeError, match=r"^load\(\) missing 1 required positional argument: 'path'$"
    ):
        library.load()
    assert len(calls.begun) == 3
    assert pickle.loads(pickle.dumps(library.Small())).size == 0


def test_everything_is_put_back_for_whoever_has_it(library: Any) -> None:
    held = [library.load, library.Model.__init__, library.Model.make, library.Model.probe]
    codes, calls = [one.__code__ for one in held], Calls()
    undone = [
        patch_with_step(library, name, calls.begin)
        for name in ("load", "Model.__init__", "Model.make", "Model.probe")
    ]
    for undo in [*undone, *undone]:
        assert undo is not None
        undo()
    assert [one.__code__ for one in held] == codes
    held[0]("x")
    assert calls.begun == []


def test_two_around_one_call_are_taken_away_in_any_order(library: Any) -> None:
    code, first, second = library.load.__code__, Calls(), Calls()
    undone = [patch_with_step(library, "load", calls.begin) for calls in (first, second)]
    assert undone[0] is not None
    assert undone[1] is not None
    undone[0]()
    library.load("x")
    assert (len(first.begun), len(second.begun)) == (0, 1)
    undone[1]()
    assert library.load.__code__ is code


def test_the_source_of_each_function_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("first", "second"):
        (tmp_path / f"{name}_lib.py").write_text(f"# {name}\ndef {name}():\n    return {name!r}\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("first", "second"):
        module = importlib.import_module(f"{name}_lib")
        assert patch_with_step(module, name, Calls().begin) is not None
        assert inspect.getsource(getattr(module, name)) == f"def {name}():\n    return {name!r}\n"
        del sys.modules[f"{name}_lib"]


def test_what_is_pickled_by_value_has_nothing_of_ours(library: Any) -> None:
    """As cloudpickle does with a function of the script's own: its code with its constants."""
    patch_with_step(library, "load", Calls().begin)
    (ours,) = [one for one in library.load.__code__.co_consts if hasattr(one, "original")]
    made, (original,) = ours.__reduce__()
    code = library.load.__code__
    consts = tuple(made(original) if one is ours else one for one in code.co_consts)
    there = FunctionType(code.replace(co_consts=consts), vars(library), "load")
    there.__kwdefaults__ = {"fast": True}
    assert there("x") == ("x", True)


@pytest.mark.parametrize("kind", ["generator", "coroutine", "built_in", "partial"])
def test_what_is_no_plain_function_is_left_as_it_is(library: Any, kind: str) -> None:
    source = "def generator(): yield 1\nasync def coroutine(): pass\nbuilt_in = len"
    exec(source, vars(library))
    library.partial = functools.partial(len)
    assert patch_with_step(library, kind, Calls().begin) is None


def test_methods_keep_their_kind_and_subclasses_their_classes(library: Any) -> None:
    calls = Calls()
    for name in ("Model.__init__", "Model.make", "Model.probe"):
        assert patch_with_step(library, name, calls.begin) is not None
    small = library.Small()
    assert isinstance(small, library.Model)
    assert type(library.Model.make(3)) is library.Model
    assert library.Small.make.__self__ is library.Small
    assert library.Model.probe() == 1
    assert len(calls.ended) == 4


def test_what_another_version_does_not_have_is_left(library: Any) -> None:
    assert patch_with_step(library, "save", Calls().begin) is None
    assert patch_with_step(library, "Other.make", Calls().begin) is None
    assert patch_with_step(library, "Small.make", Calls().begin) is None  # inherited


def test_an_error_goes_through_as_if_nobody_had_been_in_between(library: Any) -> None:
    def frames() -> list[str]:
        try:
            library.load("bad")
        except ValueError as error:
            return [frame.name for frame in traceback.extract_tb(error.__traceback__)]
        return []

    plain, calls = frames(), Calls()
    patch_with_step(library, "load", calls.begin)
    assert frames() == plain
    assert isinstance(calls.ended[0], ValueError)


def test_a_warning_leads_to_the_line_of_the_script(library: Any) -> None:
    patch_with_step(library, "load", Calls().begin)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        library.load("odd")
    assert [warning.filename for warning in caught] == [__file__]
