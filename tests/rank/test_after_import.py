"""Functions that are called as soon as a module has been imported."""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
from hangbisect.rank.after_import import after_import, before_import, wait_no_more


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module that can be imported, and has not been."""
    name = "module_of_this_test"
    (tmp_path / f"{name}.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.delitem(sys.modules, name, raising=False)
    return name


def test_it_is_called_when_the_module_is_there_and_before_who_imports_it_goes_on(
    module: str,
) -> None:
    seen: list[int] = []
    after_import(module, lambda one: seen.append(one.value))
    assert seen == []
    importlib.import_module(module)
    assert seen == [1]


def test_a_module_that_is_there_already_does_not_have_to_be_waited_for() -> None:
    seen: list[ModuleType] = []
    after_import("json", seen.append)
    assert seen == [json]


def test_all_that_wait_for_one_module_are_called(module: str) -> None:
    seen: list[str] = []
    after_import(module, lambda one: seen.append("a"))
    after_import(module, lambda one: seen.append("b"))
    importlib.import_module(module)
    assert seen == ["a", "b"]


def test_the_module_and_the_way_of_imports_are_as_without_it(module: str) -> None:
    before = list(sys.meta_path)
    after_import(module, lambda one: None)
    found = importlib.import_module(module)
    assert sys.meta_path == before
    assert "exec_module" not in vars(found.__loader__)
    assert found.__spec__ is not None
    assert found.__spec__.loader is found.__loader__


def test_a_module_that_does_not_exist_is_missed_as_ever(module: str) -> None:
    after_import("no_such_module_at_all", lambda one: None)
    with pytest.raises(ModuleNotFoundError, match="no_such_module_at_all"):
        importlib.import_module("no_such_module_at_all")


def test_something_is_called_just_before_a_modules_code_runs(module: str, tmp_path: Path) -> None:
    seen: list[str] = []
    (tmp_path / f"{module}.py").write_text(f"seen = {module!r}\nraise LookupError")
    before_import(module, lambda: seen.append("before"), lambda: seen.append("failed"))
    assert importlib.util.find_spec(module) is not None  # being looked for is not enough
    assert seen == []
    with pytest.raises(LookupError) as raised:
        importlib.import_module(module)
    assert seen == ["before", "failed"]
    assert [entry.name for entry in raised.traceback][-1] == "<module>"
    assert "after_import.py" not in {Path(entry.path).name for entry in raised.traceback}


def test_whoever_looks_for_a_module_does_not_spoil_it(module: str) -> None:
    seen: list[int] = []
    after_import(module, lambda one: seen.append(one.value))
    importlib.util.find_spec(module)
    importlib.import_module(module)
    assert seen == [1]


def test_what_is_called_before_may_want_more_of_the_same_module(module: str) -> None:
    seen: list[object] = []

    def before() -> None:
        before_import(module, lambda: seen.append("more"))
        after_import(module, lambda one: seen.append(one.value))

    before_import(module, before)
    importlib.import_module(module)
    assert seen == ["more", 1]


def test_what_is_waited_for_no_more_is_not_called(module: str) -> None:
    before = list(sys.meta_path)
    seen: list[ModuleType] = []
    then = seen.append
    after_import(module, then)
    wait_no_more([then])
    assert sys.meta_path == before
    importlib.import_module(module)
    assert seen == []
