"""Until when a wait lasts at the most, as the kernel knows: it is not called a hang before."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hangbisect.base.process_facts import Kernel, Look
from hangbisect.base.rank_facts import RankFacts
from hangbisect.diagnosis.process.time_limits import (
    describe_time_limit,
    find_first_limit,
    find_time_limit,
    waits_anew,
)
from hangbisect.diagnosis.verdict import judge_job
from hypothesis import given
from hypothesis import strategies as st

from .made_up import job, look, rank, silent_peer

_TRAIN = ("train train.py:20", "<module> train.py:30")


def waiting(call: str, *left: float | None) -> list[Look]:
    """Looks a second apart at a main thread in a call, each with the time limit that it shows."""
    seen = []
    for number, seconds in enumerate(left):
        one = look(*_TRAIN, call=call, descriptors=(silent_peer(),) if call == "poll" else ())
        task = one.kernel[0]
        assert task.syscall is not None
        call_now = replace(task.syscall, timeout=seconds)
        task = replace(task, syscall=call_now)
        seen.append(replace(one, at=100.0 + number, kernel=(task,)))
    return seen


def limit(*ranks: RankFacts) -> float:
    return find_time_limit(judge_job(job("late", len(ranks)), ranks), ranks)


@pytest.mark.parametrize("call", ["clock_nanosleep", "futex"])
def test_the_kernel_counts_down(call: str) -> None:
    assert limit(rank(0, *waiting(call, 60.0, 59.0, 58.0))) == pytest.approx(160.0)


def test_of_a_poll_the_whole_limit_is_known_from_when_it_was_first_seen() -> None:
    assert limit(rank(0, *waiting("poll", 30.0, 30.0, 30.0))) == pytest.approx(130.0)


@pytest.mark.parametrize("call", ["clock_nanosleep", "futex"])
def test_who_begins_anew_each_time_has_no_limit(call: str) -> None:
    assert limit(rank(0, *waiting(call, 0.3, 0.4, 0.3))) == 0.0


_TIMES = st.floats(0.5, 600.0)


@given(_TIMES, _TIMES, st.floats(0.0, 0.08), st.floats(0.0, 0.08))
def test_one_sleep_is_one_though_a_busy_machine_reads_it_late(
    length: float, apart: float, late: float, later: float
) -> None:
    left = length + apart
    first, second = waiting("clock_nanosleep", left - late, left - apart - later)
    assert not waits_anew(first, replace(second, at=first.at + apart))


@given(st.floats(0.2, 600.0), _TIMES, st.floats(0.0, 1.0))
def test_sleeps_one_after_the_other_are_not_one(length: float, apart: float, begun: float) -> None:
    """Each lasts `length`; the first look comes when `begun` of it is over."""
    ends = length * (1.0 - begun)
    while ends < apart:
        ends += length
    first, second = waiting("clock_nanosleep", length * (1.0 - begun), ends - apart)
    is_another = ends > length * (1.0 - begun)
    assert waits_anew(first, replace(second, at=first.at + apart)) == is_another


def test_a_sleep_that_shows_its_whole_length_ends_that_long_after_it_was_first_seen() -> None:
    """As the program `sleep` does; one that sleeps again and again is beyond that soon."""
    assert limit(rank(0, *waiting("clock_nanosleep", 7.0, 7.0, 7.0))) == pytest.approx(107.0)
    assert limit(rank(0, *waiting("clock_nanosleep", 0.5, 0.5, 0.5))) < 102.0


def test_a_wait_of_days_is_no_limit_that_anybody_waits_for() -> None:
    assert limit(rank(0, *waiting("clock_nanosleep", 1e8, 1e8 - 1, 1e8 - 2))) == 0.0


@pytest.mark.parametrize("call", ["recvfrom", "futex", "poll", "read"])
def test_a_call_without_a_limit_has_none(call: str) -> None:
    assert limit(rank(0, *waiting(call, None, None))) == 0.0


def test_the_wait_of_the_child_counts_where_that_is_waited_for() -> None:
    child = tuple(
        replace(one, pid=4711, ppid=100, name="sleep", threads=())
        for one in waiting("clock_nanosleep", 90.0, 89.0)
    )
    parent = look(*_TRAIN, call="wait4", args=(4711, 0, 0, 0, 0, 0))
    assert limit(rank(0, parent, replace(parent, at=101.0), children=(child,))) == pytest.approx(
        190.0
    )


@given(st.lists(st.one_of(st.none(), st.floats(0, 1e6)), min_size=1, max_size=5))
def test_it_is_never_before_the_first_look(left: list[float | None]) -> None:
    found = limit(rank(0, *waiting("clock_nanosleep", *left)))
    assert found == 0.0 or found >= 100.0


def test_the_first_limit_is_what_is_left_of_the_shortest_wait() -> None:
    sleeps, polls = rank(0, *waiting("futex", 60.0, 59.0)), rank(1, *waiting("poll", 30.0, 30.0))
    found = find_first_limit([sleeps, polls])
    assert found is not None
    assert (found.rank, found.call) == (1, "poll")
    assert found.left == pytest.approx(29.0)
    assert find_first_limit([rank(0, *waiting("poll", None, None)), rank(1)]) is None


def asks_for_a_lock(timeout: str, start: str = "", *, again: bool = False) -> list[Look]:
    """Looks a second apart at a rank that asks for a lock on a file with filelock."""
    caller = "WeakFileLock SP/huggingface_hub/utils/_fixes.py:99" if again else "count train.py:28"
    one = look(
        "BaseFileLock._poll_until_acquired SP/filelock/_api.py:1177",
        "BaseFileLock.acquire SP/filelock/_api.py:1037",
        caller,
        "<module> train.py:41",
        call="clock_nanosleep",
    )
    main = one.threads[0]
    told = (("lock_filename", "/w/counts.lock"), ("timeout", timeout), ("start_time", start))
    frames = (replace(main.frames[0], locals=told), *main.frames[1:])
    one = replace(one, threads=(replace(main, frames=frames),))
    return [replace(one, at=100.0 + number) for number in range(3)]


def test_a_lock_that_is_asked_for_with_a_limit_is_given_up_then() -> None:
    assert limit(rank(0, *asks_for_a_lock("40", "90.5"))) == pytest.approx(130.5)


def test_the_limit_is_read_from_the_tuple_of_newer_versions() -> None:
    looks = []
    for one in asks_for_a_lock(""):
        main = one.threads[0]
        told = (("lock_filename", "/w/counts.lock"), ("wait", "(True, None, 40, 0.05, 90.5)"))
        asks = replace(main.frames[0], file="/SP/filelock/_core/_acquire.py", locals=told)
        looks.append(replace(one, threads=(replace(main, frames=(asks, *main.frames[1:])),)))
    assert limit(rank(0, *looks)) == pytest.approx(130.5)


def test_by_a_clock_of_another_kind_it_is_given_up_so_long_after_the_first_look() -> None:
    """Old versions of filelock have the time of day."""
    assert limit(rank(0, *asks_for_a_lock("40", "1764356736.2"))) == pytest.approx(140.0)
    assert limit(rank(0, *asks_for_a_lock("40"))) == pytest.approx(140.0)


@pytest.mark.parametrize("timeout", ["-1", "None", ""])
def test_a_lock_that_is_asked_for_without_a_limit_has_none(timeout: str) -> None:
    assert limit(rank(0, *asks_for_a_lock(timeout, "90.5"))) == 0.0


def test_who_asks_again_after_each_limit_has_none() -> None:
    assert limit(rank(0, *asks_for_a_lock("10", "95.0", again=True))) == 0.0


# ---- limits that functions were given ------------------------------------------------------------


def gives_up(frame: str, told: tuple[str, ...], *inner: str, name: str = "timeout") -> list[Look]:
    """Looks a second apart at a rank that waits in short steps, in a function that was given a time
    limit: `told` at each look.
    """
    seen = []
    for number, value in enumerate(told):
        one = look(*inner, frame, *_TRAIN, call="futex")
        main = one.threads[0]
        given = replace(main.frames[len(inner)], locals=((name, value),))
        frames = (*main.frames[: len(inner)], given, *main.frames[len(inner) + 1 :])
        task = one.kernel[0]
        assert task.syscall is not None
        task = replace(task, syscall=replace(task.syscall, timeout=0.1 + 0.3 * (number % 2)))
        one = replace(one, threads=(replace(main, frames=frames),), kernel=(task,))
        seen.append(replace(one, at=100.0 + number))
    return seen


_EVENT = ("Condition.wait STD/threading.py:327", "Event.wait STD/threading.py:629")
GIVEN = {
    "fsspec": ("sync SP/fsspec/asyn.py:95", "timeout"),
    "requests": ("Session.request SP/requests/sessions.py:589", "timeout"),
    "urllib3": ("HTTPConnectionPool.urlopen SP/urllib3/connectionpool.py:715", "timeout"),
    "httpcore": ("SyncStream.read SP/httpcore/_backends/sync.py:128", "timeout"),
    "W&B": ("MailboxHandle.wait_or SP/wandb/sdk/mailbox/mailbox_handle.py:63", "timeout"),
    "W&B's port": (
        "poll_for_token SP/wandb/sdk/lib/service/service_port_file.py:50",
        "timeout",
    ),
    "join": ("Thread.join STD/threading.py:1123", "timeout"),
    "result": ("Future.result STD/concurrent/futures/_base.py:451", "timeout"),
    "process": ("Process.join STD/multiprocessing/process.py:149", "timeout"),
    "queue": ("Queue.get STD/queue.py:180", "timeout"),
    "child": ("Popen._wait STD/subprocess.py:2035", "timeout"),
    "monitored": ("monitored_barrier SP/torch/distributed/distributed_c10d.py:4800", "timeout"),
    "barrier": ("barrier SP/torch/distributed/elastic/utils/store.py:196", "barrier_timeout"),
    "port": ("wait_port_available SP/sglang/srt/utils/common.py:9", "timeout_s"),
}


@pytest.mark.parametrize("where", GIVEN)
def test_a_limit_that_a_function_was_given_counts_from_the_first_look(where: str) -> None:
    """When it began nobody knows: at most that long from there."""
    frame, name = GIVEN[where]
    assert limit(rank(0, *gives_up(frame, ("60",) * 3, name=name))) == pytest.approx(160.0)


@pytest.mark.parametrize(
    ("told", "end"),
    [
        ("(3.05, 27)", 127.0),
        ("datetime.timedelta(seconds=90)", 190.0),
        ("datetime.timedelta(days=1, seconds=5)", 0.0),
        ("None", 0.0),
        ("-1", 0.0),
        ("0", 0.0),
        ("<urllib3.util.timeout.Timeout at 0x7f>", 0.0),
        ("nan", 0.0),
        ("", 0.0),
    ],
)
def test_it_is_read_as_it_is_worded(told: str, end: float) -> None:
    frame, _ = GIVEN["requests"]
    assert limit(rank(0, *gives_up(frame, (told,) * 2))) == pytest.approx(end)


def test_one_that_is_counted_down_ends_when_it_says() -> None:
    """As fsspec does, a second each second."""
    frame, _ = GIVEN["fsspec"]
    found = limit(rank(0, *gives_up(frame, ("60.0", "59.0", "58.0"), *_EVENT)))
    assert found == pytest.approx(160.0)


def test_of_several_that_were_given_the_longest_counts() -> None:
    """The inner one is a step of the outer one, which goes on after it."""
    found = gives_up(GIVEN["join"][0], ("1",) * 3)
    outer, _ = GIVEN["fsspec"]
    seen = []
    for one, longer in zip(found, gives_up(outer, ("60",) * 3), strict=True):
        main, other = one.threads[0], longer.threads[0]
        frames = (main.frames[0], *other.frames)
        seen.append(replace(one, threads=(replace(main, frames=frames),)))
    assert limit(rank(0, *seen)) == pytest.approx(160.0)


def test_who_catches_that_it_is_over_and_asks_again_has_none_of_these() -> None:
    again = "_MultiProcessingDataLoaderIter._get_data SP/torch/utils/data/dataloader.py:1288"
    found = gives_up(again, ("",) * 2, "Queue.get STD/queue.py:180")
    inner = [replace(one.threads[0].frames[0], locals=(("timeout", "5.0"),)) for one in found]
    seen = [
        replace(one, threads=(replace(one.threads[0], frames=(f, *one.threads[0].frames[1:])),))
        for one, f in zip(found, inner, strict=True)
    ]
    assert limit(rank(0, *seen)) == 0.0


def test_a_function_of_the_jobs_own_limits_nothing_that_it_called() -> None:
    """Its local of the same name may be anything."""
    assert limit(rank(0, *gives_up("wait mine.py:9", ("60",) * 2))) == 0.0


def test_who_waits_for_a_child_gives_up_by_its_own_limit() -> None:
    child = tuple(
        replace(one, pid=4711, ppid=100, name="sleep", threads=())
        for one in waiting("clock_nanosleep", 9000.0, 8999.0)
    )
    frame, _ = GIVEN["child"]
    parent = [
        replace(one, kernel=look(call="wait4", args=(4711, 0, 0, 0, 0, 0)).kernel)
        for one in gives_up(frame, ("30",) * 2)
    ]
    assert limit(rank(0, *parent, children=(child,))) == pytest.approx(130.0)


def test_it_is_said_whose_limit_it_is_and_that_its_start_is_not_known() -> None:
    ranks = [rank(0, *gives_up(GIVEN["requests"][0], ("60",) * 3))]
    verdict = judge_job(job("late", 1), ranks)
    assert describe_time_limit(verdict, ranks) == (
        "rank 0 waits for 60 s at most by the time limit of Session.request "
        "(sessions.py:589): it gives up within 60 s of the first look"
    )
    assert describe_time_limit(verdict, [rank(0, *waiting("futex", 60.0, 59.0))]) == ""


def test_a_collective_of_gloo_ends_by_the_limit_of_its_group() -> None:
    """The main thread waits for a thread of the group's, and that has the limit."""
    one = look("all_reduce SP/torch/distributed/distributed_c10d.py:2800", *_TRAIN)
    syscall = one.kernel[0].syscall
    assert syscall is not None
    thread = Kernel(101, "pt_gloo_runloop", "S", "futex", replace(syscall, timeout=90.0))
    one = replace(one, kernel=(one.kernel[0], thread))
    alone = rank(0, one, replace(one, at=101.0))
    verdict = judge_job(job("late", 1), [alone])
    assert verdict.ranks.culprit == (0,)
    assert find_time_limit(verdict, [alone]) == pytest.approx(191.0)
    other = look("recv data.py:7", *_TRAIN, call="recvfrom")
    other = replace(other, kernel=(*other.kernel, thread))
    busy = rank(0, other, replace(other, at=101.0))
    assert find_time_limit(judge_job(job("late", 1), [busy]), [busy]) == 0.0
