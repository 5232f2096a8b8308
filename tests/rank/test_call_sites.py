"""Where a call of torch comes from."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
from hangbisect.rank import call_sites
from hangbisect.rank.call_sites import DEEPEST, CallSites

LIBRARY = "/venv/lib/python3.11/site-packages/library/{}.py"


@pytest.fixture
def texts() -> list[str]:
    """All texts that were given a number, in order."""
    return [""]


@pytest.fixture
def sites(texts: list[str]) -> CallSites:
    def number_of(text: str) -> int:
        texts.append(text)
        return len(texts) - 1

    return CallSites(number_of)


def within(levels: int, inner: Callable[[], Any]) -> Any:
    """Call `inner` from within so many functions of a library."""
    for level in range(levels):
        source = f"def level{level}(inner):\n    return inner()\n"
        values: dict[str, Any] = {}
        exec(compile(source, LIBRARY.format(f"file{level}"), "exec"), values)
        inner = _bound(values[f"level{level}"], inner)
    return inner()


def _bound(function: Callable[[Any], Any], inner: Callable[[], Any]) -> Callable[[], Any]:
    values: dict[str, Any] = {"function": function, "inner": inner}
    # As C would: without a frame of ours in between.
    exec(compile("run = lambda: function(inner)", LIBRARY.format("glue"), "exec"), values)
    run: Callable[[], Any] = values["run"]
    return run


def library_call(sites: CallSites) -> Callable[[], int]:
    values: dict[str, Any] = {"sites": sites, "sys": sys}
    source = "def call():\n    return sites.of(sys._getframe())\n"
    exec(compile(source, LIBRARY.format("inner"), "exec"), values)
    call: Callable[[], int] = values["call"]
    return call


def test_the_jobs_own_line_is_named(sites: CallSites, texts: list[str]) -> None:
    number = sites.of(sys._getframe())
    site, between, file, origin, path = texts[number].split("\n")
    assert site.startswith("test_call_sites.py:")
    assert site.endswith(" test_the_jobs_own_line_is_named")
    assert (between, file, origin) == ("", __file__, "")
    assert path.split(" < ")[0].startswith("_pytest/python.py:")


def called_by(sites: CallSites) -> int:
    return sites.of(sys._getframe())


def test_two_calls_of_one_helper_are_two_sites_and_their_callers_are_told(
    sites: CallSites, texts: list[str]
) -> None:
    first = called_by(sites)
    second = called_by(sites)
    again = {called_by(sites) for _ in range(3)}
    assert len({first, second, *again}) == 3
    (site, *_, path), (other, *_, other_path) = (texts[n].split("\n") for n in (first, second))
    assert site == other
    line = sys._getframe().f_code.co_firstlineno + 3
    name = "test_two_calls_of_one_helper_are_two_sites_and_their_callers_are_told"
    assert path.split(" < ")[0] == f"{__file__}:{line} {name}"
    assert other_path.split(" < ")[0] == f"{__file__}:{line + 1} {name}"


def test_beyond_many_ways_the_innermost_frames_tell(
    sites: CallSites, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_sites, "_MOST_WAYS", 1)

    def deep(levels: int) -> int:
        return deep(levels - 1) if levels else called_by(sites)

    assert len({deep(levels) for levels in range(10, 20)}) > 1
    known = {deep(levels) for levels in range(10, 30)}
    assert {deep(levels) for levels in range(30, 40)} <= known


def test_one_line_has_one_number_and_another_line_another(sites: CallSites) -> None:
    numbers = [sites.of(sys._getframe()) for _ in range(3)]
    assert len(set(numbers)) == 1
    assert sites.of(sys._getframe()) != numbers[0]


def test_what_lies_between_is_told_innermost_first(sites: CallSites, texts: list[str]) -> None:
    number = within(1, library_call(sites))
    site, between, *_ = texts[number].split("\n")
    assert "within" in site
    assert between == "inner.py:2 call < file0.py:2 level0 < glue.py:1 <lambda>"


def test_far_inside_a_library_its_own_frame_is_the_site_and_the_jobs_is_told_too(
    sites: CallSites, texts: list[str]
) -> None:
    number = within(DEEPEST, library_call(sites))
    site, between, file, origin, path = texts[number].split("\n")
    assert site == "library/inner.py:2 call"
    assert between.count(" < ") == DEEPEST - 2
    assert "within" in origin
    assert file == __file__
    assert path.split(" < ")[0].startswith(f"{__file__}:")


def test_torch_and_we_ourselves_are_not_worth_a_word() -> None:
    ours = call_sites.__file__
    assert call_sites.find_code_owner(ours) == call_sites.HIDDEN
    steps = ours.replace("rank/call_sites.py", "pipelines/model_steps.py")
    assert call_sites.find_code_owner(steps) == call_sites.JOBS
    between = ours.replace("rank/call_sites.py", "pipelines/fit_phases.py")
    assert call_sites.find_code_owner(between) == call_sites.HIDDEN
    assert call_sites.find_code_owner(LIBRARY.format("x")) == call_sites.LIBRARY
    assert call_sites.find_code_owner(__file__) == call_sites.JOBS


def test_there_is_an_end_to_the_sites_that_are_kept(
    sites: CallSites, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_sites, "_MOST_SITES", 1)
    assert sites.of(sys._getframe()) != 0
    assert sites.of(sys._getframe()) == 0
