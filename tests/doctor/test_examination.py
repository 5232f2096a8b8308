"""All checks at once: none hides another, and none takes longer than it may."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

import pytest
from hangbisect.doctor.examination import (
    Check,
    CheckFamily,
    Finding,
    Setting,
    examine,
    ok,
    problem,
    run_in_threads,
    unknown,
    warning,
)

from .made_up import setting


def check(
    name: str,
    read: Callable[[Setting], object] = lambda given: 7,
    judge: Callable[[Setting, object], Iterable[Finding]] = lambda given, facts: [ok(str(facts))],
) -> Check[object]:
    return Check(name, "a title", "a reason", read, judge)


def found(*checks: Check[object], limit: float = 20.0) -> list[tuple[str, str, str]]:
    seen = examine(setting().within(limit), [CheckFamily("made up", checks)]).found
    return [(one.check.id, one.finding.level, one.finding.value) for one in seen]


def fail(error: Exception) -> Callable[..., object]:
    def call(*_: object) -> object:
        raise error

    return call


def test_what_cannot_be_said_is_not_known_and_the_others_go_on() -> None:
    never = threading.Event()

    def still(given: Setting) -> None:
        never.wait(60)

    seen = found(
        check("a", still),
        check("b", fail(FileNotFoundError(2, "No such file", "/x"))),
        check("c", fail(KeyError("x"))),
        check("d", judge=fail(ValueError("y"))),  # type: ignore[arg-type]  # it raises
        check("e"),
        limit=2.0,
    )
    never.set()
    assert seen == [
        ("a", "unknown", "no answer within 2 s"),
        ("b", "unknown", "No such file: /x"),
        ("c", "unknown", "hangbisect's own error: KeyError: 'x'"),
        ("d", "unknown", "hangbisect's own error: ValueError: y"),
        ("e", "ok", "7"),
    ]


def test_checks_with_the_same_reading_share_it() -> None:
    calls = []

    def read(given: Setting) -> int:
        calls.append(given)
        return len(calls)

    assert [value for *_, value in found(check("a", read), check("b", read))] == ["1", "1"]


@pytest.mark.parametrize(
    ("findings", "level"),
    [
        ([ok("")], "ok"),
        ([ok(""), unknown("")], "ok"),
        ([unknown(""), warning("", "")], "warning"),
        ([warning("", ""), problem("", ""), ok("")], "problem"),
    ],
)
def test_the_worst_level_is_the_answer(findings: list[Finding], level: str) -> None:
    seen = examine(setting(), [CheckFamily("", (check("a", judge=lambda given, facts: findings),))])
    assert seen.level == level


def test_calls_at_once_end_at_their_limit() -> None:
    never = threading.Event()
    answers = run_in_threads(
        2.0, {"a": lambda: 1, "b": lambda: never.wait(60), "c": fail(KeyError("z"))}
    )
    never.set()
    assert answers["a"] == 1
    assert isinstance(answers["b"], TimeoutError)
    assert isinstance(answers["c"], KeyError)
