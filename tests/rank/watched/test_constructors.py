"""A constructor that is known is over when that of the object's own class is."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest
from hangbisect.rank.watched.constructors import until_constructed
from hangbisect.rank.watched.row import Row
from hangbisect.rank.watched.wrapping import put_around

HEARD: list[str] = []  # what happened, in order


class Base:
    """Of a library: this constructor is known."""

    def __init__(self) -> None:
        HEARD.append("base")


class Model(Base):
    def __init__(self, bad: bool = False) -> None:
        super().__init__()
        HEARD.append("loads")
        if bad:
            raise ValueError


class Larger(Model):
    def __init__(self, bad: bool = False) -> None:
        super().__init__(bad)
        HEARD.append("loads more")


@dataclass
class Data(Base):
    rows: int = 1

    def __post_init__(self) -> None:
        super().__init__()
        HEARD.append("downloads")


class Plain(Base):
    pass


@pytest.fixture(autouse=True)
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The constructor of Base is a step; coverage, which traces lines, is none here."""

    def end(error: BaseException | None) -> None:
        HEARD.append("failed" if error is not None else "done")

    def begin(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return until_constructed(end, args[0], sys._getframe(2))

    module = ModuleType("lib_here")
    module.Base = Base  # type: ignore[attr-defined]  # made here
    row = Row("lib.Base", "lib_here:Base.__init__", "base", "Base ready", "model", None)
    undo = put_around(module, row, begin)
    trace = sys.gettrace()
    sys.settrace(None)
    HEARD.clear()
    yield
    sys.settrace(trace)
    assert undo is not None
    undo()


def test_it_lasts_until_the_last_line_of_the_outermost_class() -> None:
    Larger()
    HEARD.append("after it")
    assert HEARD == ["base", "loads", "loads more", "done", "after it"]


def test_a_class_without_a_constructor_of_its_own_needs_no_longer() -> None:
    Plain()
    assert HEARD == ["base", "done"]


def test_a_dataclass_begins_it_in_post_init() -> None:
    Data()
    assert HEARD == ["base", "downloads", "done"]


def test_called_by_a_function_in_c_it_ends_in_time() -> None:
    list(map(Model, [False, False]))
    assert HEARD == ["base", "loads", "done"] * 2


def test_one_that_raises_is_not_done() -> None:
    try:
        Larger(bad=True)
    except ValueError:
        HEARD.append("caught")
    assert HEARD == ["base", "loads", "caught", "failed"]


def test_one_whose_error_is_kept_is_not_done_either() -> None:
    def fails() -> ValueError:
        try:
            Larger(bad=True)
        except ValueError as error:
            return error
        raise AssertionError

    kept = fails()
    assert HEARD == ["base", "loads"]
    del kept
    assert HEARD == ["base", "loads", "failed"]


def test_under_a_debugger_only_the_known_constructor_counts() -> None:
    sys.settrace(lambda frame, event, argument: None)
    Model()
    sys.settrace(None)
    assert HEARD == ["base", "done", "loads"]


def test_a_debugger_that_comes_meanwhile_traces_as_ever() -> None:
    class Traced(Base):
        def __init__(self) -> None:
            super().__init__()
            sys.settrace(lambda frame, event, argument: None)
            HEARD.append("loads")
            sys.settrace(None)

    Traced()
    assert HEARD == ["base", "loads", "done"]
