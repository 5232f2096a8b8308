"""Locks that are files which are there: left behind, or somebody's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hangbisect.base.process_facts import AwaitedFile, Look
from hangbisect.base.rank_facts import RankFacts
from hangbisect.collect.looks import may_wait_for_another
from hangbisect.diagnosis.snapshot import Snapshot
from hangbisect.diagnosis.verdict import judge_job

from ..made_up import ALL_REDUCE, held, job, look, rank
from .scenes import Facts, Shows, causes_of

PATH = "/cache/build/index.lock"


def waits(pid: int = 100, **file: Any) -> Look:
    """A look at a rank that polls a file which was made long before."""
    one = replace(AwaitedFile(PATH, 90000.0, pid, "exclusive (cache.py:9)"), **file)
    return look(
        "exclusive cache.py:9",
        "<module> train.py:5",
        pid=pid,
        call="clock_nanosleep",
        awaited_files=(one,),
    )


def twice(number: int, one: Look, **more: Any) -> RankFacts:
    """A rank with two looks, three seconds apart."""
    return rank(number, replace(one, at=one.at - 3.0), one, **more)


def left() -> Facts:
    return job(), [twice(0, waits()), held(1)]


def owned() -> Facts:
    return job(), [twice(0, waits(holder=4711, holder_name="python3")), held(1)]


SHOWS: Shows = {"lock-file-without-owner": left, "lock-file-of-another": owned}


def ids(facts: Facts) -> set[str]:
    return set(causes_of(facts)) & set(SHOWS)


def test_a_file_that_is_older_than_the_job_and_nobodys_is_to_be_removed() -> None:
    cause = causes_of(left())["lock-file-without-owner"]
    assert cause.level == "fits"
    assert cause.avoid[0] == f"rm {PATH}"
    told = " ".join((cause.why, *cause.matched))
    for words in (PATH, "25.0 h", "exclusive (cache.py:9)", "no process here has it open"):
        assert words in told, told


def test_what_it_waits_for_is_that_lock() -> None:
    wait = judge_job(*left()).waits_for
    assert wait is not None
    assert (wait.kind, wait.what) == ("lock", PATH)


def test_the_process_that_it_names_is_gone() -> None:
    cause = causes_of((job(), [twice(0, waits(age=40.0, maker=4711, maker_lives=False)), held(1)]))
    assert "4711" in " ".join(cause["lock-file-without-owner"].matched)


@pytest.mark.parametrize(
    "file",
    [
        {"holder": 4711, "holder_name": "python3"},
        {"maker": 4711, "maker_lives": True, "maker_name": "python3"},
    ],
)
def test_one_that_a_living_process_has_is_not_left_behind(file: dict[str, Any]) -> None:
    facts = job(), [twice(0, waits(**file)), held(1)]
    assert ids(facts) == {"lock-file-of-another"}
    assert "4711" in causes_of(facts)["lock-file-of-another"].why
    wait = judge_job(*facts).waits_for
    assert wait is not None
    assert wait.pid == 4711


def test_that_it_is_open_is_seen_and_that_it_names_somebody_only_fits() -> None:
    assert causes_of(owned())["lock-file-of-another"].level == "seen"
    named = twice(0, waits(maker=4711, maker_lives=True, maker_name="python3"))
    assert causes_of((job(), [named, held(1)]))["lock-file-of-another"].level == "fits"


def test_one_that_is_younger_than_the_wait_belongs_to_somebody_at_work() -> None:
    assert "lock-file-without-owner" not in ids((job(), [twice(0, waits(age=1.0)), held(1)]))


def test_one_that_was_made_as_the_wait_began_is_as_old_as_the_wait() -> None:
    """By whoever waits, for one: both times are measured, and neither is exact."""
    assert "lock-file-without-owner" in ids((job(world=1), [twice(0, waits(age=2.9))]))
    assert "lock-file-without-owner" not in ids((job(world=1), [twice(0, waits(age=1.0))]))


def test_one_that_another_process_of_the_job_may_have_made_is_not_left_behind() -> None:
    # 50 s is how old the ranks are.
    other = rank(1, look("prepare data.py:4", call="recvfrom"))
    assert "lock-file-without-owner" not in ids((job(), [twice(0, waits(age=40.0)), other]))
    child = look("prepare data.py:4", pid=901, ppid=100, call="recvfrom")
    facts = job(world=1), [twice(0, waits(age=40.0), children=((child,),))]
    assert "lock-file-without-owner" not in ids(facts)


def test_ages_that_are_told_at_different_times_are_not_compared() -> None:
    """The last look took three seconds, and kept what was read of the file before."""
    waits_for_it = rank(0, replace(waits(age=51.0), at=97.0), waits(age=51.0))
    other = rank(1, replace(ALL_REDUCE, at=97.0, age=47.0), replace(ALL_REDUCE, age=53.0))
    assert "lock-file-without-owner" in ids((job(), [waits_for_it, other]))


def test_where_all_processes_of_the_job_wait_for_it_none_of_them_has_it() -> None:
    both = [twice(0, waits(age=40.0)), twice(1, waits(101, age=40.0))]
    assert "lock-file-without-owner" in ids((job(), both))


def test_on_a_network_file_system_another_machine_may_have_it() -> None:
    cause = causes_of((job(), [twice(0, waits(file_system="nfs4")), held(1)]))
    found = cause["lock-file-without-owner"]
    assert found.level == "guess"
    assert "nfs4" in " ".join(found.matched)
    assert "another machine" in " ".join((found.why, *found.matched, *found.avoid))
    assert not found.avoid[0].startswith("rm ")


def test_a_rank_that_polls_a_file_of_nobody_known_may_wait_for_another_rank() -> None:
    # Another rank is to remove it: nothing says that this one hangs by itself.
    facts = twice(0, waits(age=40.0))
    found = Snapshot([facts]).waits[0]
    assert may_wait_for_another(facts, found)
    gone = twice(0, waits(age=40.0, maker=4711, maker_lives=False))
    assert not may_wait_for_another(gone, Snapshot([gone]).waits[0])


def test_where_most_ranks_poll_for_it_to_go_the_one_that_does_not_is_suspect() -> None:
    ranks = [twice(n, waits(100 + n, age=40.0)) for n in range(4) if n != 2]
    other = twice(2, look("prepare data.py:4", call="clock_nanosleep", pid=102))
    found = judge_job(job(world=4), sorted([*ranks, other], key=lambda one: one.rank))
    assert found.ranks.culprit == (2,)
    assert found.guessed


def test_a_thread_that_polls_is_asked_where_the_main_thread_waits_for_it() -> None:
    main = look("Thread.join STD/threading.py:1119", "main train.py:9", args=(0,) * 6)
    poller = waits(300)
    thread = replace(poller.threads[0], os_id=300, name="fetch")
    one = replace(
        main,
        threads=(*main.threads, thread),
        kernel=(*main.kernel, replace(poller.kernel[0], tid=300)),
        awaited_files=poller.awaited_files,
    )
    facts = replace(rank(0, main), looks=(replace(one, at=97.0), one))
    cause = judge_job(job(), [facts, held(1)]).cause
    assert cause is not None
    assert cause.id == "lock-file-without-owner"


def test_a_rank_in_a_collective_is_not_asked() -> None:
    one = replace(ALL_REDUCE, awaited_files=waits().awaited_files)
    assert ids((job(), [rank(0, one), held(1)])) == set()
