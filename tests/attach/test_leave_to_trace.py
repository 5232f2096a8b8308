"""Why a stack may not be read, and the ways to one."""

from __future__ import annotations

import pytest
from hangbisect.attach.unreadable_stacks import (
    TracePermission,
    find_denial,
    find_trace_permission,
    list_ways,
)

ME = TracePermission(uid=1000, may_trace_all=False, yama=0, seccomp=False, container=False)
ROOT = TracePermission(uid=0, may_trace_all=True, yama=0, seccomp=False, container=False)


def with_(own: TracePermission, **more: object) -> TracePermission:
    return TracePermission(**{**own.__dict__, **more})


@pytest.mark.parametrize(
    ("own", "uid", "why"),
    [
        (ME, 1001, "other user"),
        (with_(ME, yama=1), 1000, "yama"),
        (with_(ROOT, yama=1), 1000, "not permitted"),
        (with_(ROOT, yama=3), 1000, "yama"),
        (with_(ROOT, seccomp=True), 0, "seccomp"),
        (with_(ME, yama=1, seccomp=True), 1000, "yama"),
        (ME, 1000, "not permitted"),
    ],
)
def test_what_forbids_it_is_named(own: TracePermission, uid: int, why: str) -> None:
    assert find_denial(own, uid) == why


def test_the_cheapest_way_comes_first_and_the_one_that_costs_the_job_late() -> None:
    found = list_ways("yama", with_(ME, yama=1), 7, {"PYTHONFAULTHANDLER": "1"}, 1000)
    assert found[0].startswith("sudo hangbisect attach 7")
    assert "ptrace_scope=0" in found[1]
    assert "it ends the job" in found[-2]
    assert "hangbisect run -- COMMAND" in found[-1]


def test_yama_that_nobody_may_undo_is_not_offered_to_be_undone() -> None:
    found = list_ways("yama", with_(ME, yama=3), 7, {}, 1000)
    assert not any("sysctl" in way for way in found)


def test_a_container_is_looked_into_from_its_host() -> None:
    found = list_ways("seccomp", with_(ROOT, seccomp=True, container=True), 7, {}, 0)
    assert found[0].startswith("from the host")
    assert "kubectl debug" in found[1]


def test_this_process_is_asked() -> None:
    assert find_trace_permission().uid >= 0
