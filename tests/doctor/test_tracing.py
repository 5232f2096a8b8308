"""Leave to look: what Yama, seccomp and capabilities make of it, and a try for real."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hangbisect.doctor import limits
from hangbisect.doctor.limits import StackAccess

from .made_up import levels, said, setting

ALL = StackAccess(None, False, True, "/bin/py-spy", "py-spy 0.4.3", "", "")
REFUSED = "py-spy may not read 7 (no permission)."


def test_where_it_works_it_is_said_how() -> None:
    ((level, value),) = said(limits.judge_stack_access, ALL)
    assert level == "ok"
    assert "no Yama, no seccomp filter, with CAP_SYS_PTRACE" in value


def test_under_yama_ranks_of_ours_allow_it_themselves() -> None:
    ((level, value),) = said(
        limits.judge_stack_access, replace(ALL, yama=1, refused=REFUSED, capable=False)
    )
    assert (level, "only ranks that hangbisect starts" in value) == ("warning", True)


@pytest.mark.parametrize(
    ("facts", "next"),
    [
        (replace(ALL, yama=3), "until the next boot"),
        (replace(ALL, yama=2, capable=False), "sysctl"),
        (replace(ALL, filtered=True), "SYS_PTRACE"),
        (ALL, "own user"),
    ],
)
def test_what_would_allow_it(facts: StackAccess, next: str) -> None:
    refused = replace(facts, refused=REFUSED, refused_allowing=REFUSED)
    (found,) = limits.judge_stack_access(setting(), refused)
    assert (found.level, next in found.next) == ("warning", True)


def test_py_spy_itself() -> None:
    assert levels(limits.installed, ALL) == ["ok"]
    assert levels(limits.installed, replace(ALL, version="")) == ["warning"]
    gone = replace(ALL, program="", version="", refused="x", refused_allowing="x")
    assert levels(limits.installed, gone) == ["warning"]
    assert levels(limits.judge_stack_access, gone) == ["unknown"]


def test_it_is_tried_on_a_process_of_our_own() -> None:
    found = limits.try_stack_access(setting())
    assert found.program
    assert found.version.startswith("py-spy ")
    assert (found.refused == "") == (levels(limits.judge_stack_access, found) == ["ok"])
