"""Changes in calls of modules that are imported after it began."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from hangbisect.base.variables import ASKED, VARIABLE
from hangbisect.rank import patches
from hangbisect.rank.after_import import _FINDER
from hangbisect.rank.call_changes import Call, ScriptValue
from hangbisect.rank.patches import Patch

SOURCE = """
def start(count=1, *, name="x"):
    "Start."
    if count < 0:
        raise ValueError(count)
    return count, name

class Loader:
    def __init__(self, size):
        self.size = size
    @classmethod
    def made(cls, size):
        return cls(size)
"""


def count(call: Call, value: str) -> ScriptValue:
    """Set the first argument; 13 cannot be looked at."""
    now = call.get("count", 1)
    if now == 13:
        raise RuntimeError("a change that fails")
    if value != ASKED:
        call.set("count", int(value))
    return ScriptValue(str(now), in_code=True)


def size(call: Call, value: str) -> ScriptValue:
    if value != ASKED:
        call.set("size", int(value))
    return ScriptValue()


def answer(call: Call, value: str) -> ScriptValue:
    call.answer_with("answered")
    return ScriptValue()


TABLE = (
    Patch("count", "steered_library:start", count),
    Patch("size", "steered_library:Loader.__init__", size),
    Patch("answer", "steered_library:Loader.made", answer),
    Patch("gone", "steered_library:no_such.thing", count),
    Patch("there", "steered_library:", lambda call, value: ScriptValue()),
)


@pytest.fixture
def told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[list[str]]:
    """What is told with the test's setting."""
    (tmp_path / "steered_library.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(patches, "PATCHES", TABLE)
    monkeypatch.setenv(VARIABLE, request.param)
    words: list[str] = []
    patches.begin_patching(words.append)
    yield words
    _FINDER.wanted.pop("steered_library", None)
    sys.modules.pop("steered_library", None)


def library() -> ModuleType:
    import steered_library  # type: ignore[import-not-found]  # made by the fixture

    return steered_library  # type: ignore[no-any-return]  # it is one


@pytest.mark.parametrize("told", ["count=5,size=7"], indirect=True)
def test_arguments_are_changed_and_told_once(told: list[str]) -> None:
    assert library().start(2, name="y") == (5, "y")
    assert library().start(2) == library().start(count=2) == library().start() == (5, "x")
    assert library().Loader(1).size == library().Loader.made(1).size == 7
    assert told == ["count=2", "count:in-code", "count=1", "size"]


@pytest.mark.parametrize("told", ["count=?,size=?,there=?,gone=1"], indirect=True)
def test_what_is_asked_is_told_and_nothing_changed(told: list[str]) -> None:
    assert library().start(2) == (2, "x")
    assert library().Loader(1).size == 1
    assert told == ["there", "count=2", "count:in-code", "size"]


@pytest.mark.parametrize("told", ["answer=1"], indirect=True)
def test_a_call_may_be_answered_without_being_made(told: list[str]) -> None:
    assert library().Loader.made(3) == "answered"


@pytest.mark.parametrize("told", ["count=5"], indirect=True)
def test_a_change_that_fails_leaves_the_call_as_it_is(told: list[str]) -> None:
    assert library().start(13) == (13, "x")
    assert told == []


@pytest.mark.parametrize("told", ["count=?"], indirect=True)
def test_the_function_looks_as_it_did_and_raises_without_our_frame(told: list[str]) -> None:
    assert (library().start.__name__, library().start.__doc__) == ("start", "Start.")
    with pytest.raises(ValueError, match="-1") as raised:
        library().start(-1)
    assert [frame.name for frame in traceback.extract_tb(raised.tb)][1:] == ["start"]


@pytest.mark.parametrize("told", [""], indirect=True)
def test_without_the_variable_nothing_is_done(told: list[str]) -> None:
    assert "steered_library" not in _FINDER.wanted
    assert library().start(2) == (2, "x")
    assert told == []
