"""Threads that do the same few things now and then, and sleep between: a heartbeat, metrics. Their
movement is none of a main thread that they have not woken over many of their turns.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hangbisect.base.process_facts import Frame, Kernel, Look, Sample, Syscall, Thread
from hangbisect.evidence.movement import collect_places, describe_movement
from hangbisect.evidence.periodic_threads import PeriodicThreads
from hypothesis import given
from hypothesis import strategies as st

PID, HELPER, WORKER = 100, 101, 102
START = (Frame("Thread.run", "threading.py", 975), Frame("_bootstrap", "threading.py", 995))
EVERY = 1.0  # seconds between two looks


def stack(*inner: tuple[str, int]) -> tuple[Frame, ...]:
    return (*(Frame(name, "job.py", line) for name, line in inner), *START)


REST = (Frame("Event.wait", "threading.py", 607), *stack(("report", 12)))


def sends(line: int) -> tuple[Frame, ...]:
    return stack(("post", line), ("send", 3), ("report", 14))


def task(tid: int, call: str = "", timeout: float | None = None) -> Kernel:
    syscall = Syscall(0, call, (), timeout=timeout, stack=tid) if call else None
    return Kernel(tid, "python", "S" if call else "R", "", syscall)


def look(at: float, frames: tuple[Frame, ...], left: float | None = 0.4, **about: Any) -> Look:
    """A look at a rank: its main thread waits for a lock, a helper thread is where `frames` say,
    asleep where it is at rest.
    """
    rests = frames[0].name == "Event.wait"
    helper = task(HELPER, "futex", left) if rests else task(HELPER)
    main = Thread(PID, "MainThread", False, False, (Frame("get", "queue.py", 171),))
    values: dict[str, Any] = {
        "threads": (main, Thread(HELPER, "report", False, False, frames)),
        "kernel": (task(PID, "futex"), helper),
        "sample": Sample(at, PID, 1, "S", 0.0, 0, int(at) * 100),
        "waits": 40,
    }
    values |= about
    return Look(at, PID, 1, "python", ("python", "t.py"), 50 + at, "S", "py-spy", **values)


def heartbeat(count: int, **about: Any) -> list[Look]:
    """Two looks of three find it at rest, each third one at a place where it never was before."""
    return [look(at * EVERY, sends(at) if at % 3 == 2 else REST, **about) for at in range(count)]


def moved(looks: list[Look], children: tuple[tuple[Look, ...], ...] = ()) -> str:
    """What the last two looks show, of which all that came before is known."""
    known, threads = collect_places(looks[:-2]), PeriodicThreads()
    for one in looks:
        threads.note(one)
    kept, below = threads.drop(looks[-2:], children)
    return describe_movement(kept, below, known)


# ---- healthy -------------------------------------------------------------------------------------


def test_a_thread_that_feeds_a_queue_slowly_wakes_the_main_thread_and_counts() -> None:
    looks = [replace(one, waits=40 + n // 3) for n, one in enumerate(heartbeat(30))]
    assert "new code" in moved(looks)


def test_a_thread_that_writes_shards_counts_though_it_pauses_between_them() -> None:
    written = [
        replace(one, sample=Sample(one.at, PID, 1, "S", 0.0, 0, int(one.at) * 100_000))
        for one in heartbeat(30)
    ]
    assert "new code" in moved(written)


def test_a_thread_that_does_not_rest_counts() -> None:
    assert "new code" in moved([look(at, sends(at)) for at in range(30)])
    waits = [look(at, REST if at % 3 == 2 else sends(at)) for at in range(30)]
    assert "new code" in moved([*waits, look(30, sends(99))])


def test_a_thread_that_has_begun_something_longer_counts() -> None:
    looks = [*heartbeat(30), *(look(30.0 + n, sends(100 + n)) for n in range(3))]
    assert "new code" in moved(looks)


def test_a_thread_that_waits_for_something_without_a_time_limit_counts() -> None:
    assert "new code" in moved(heartbeat(30, left=None))


def test_a_thread_that_rests_in_another_place_each_time_counts() -> None:
    looks = [
        look(at, sends(at) if at % 3 == 2 else (REST[0], *stack(("step", at), ("main", 1))))
        for at in range(30)
    ]
    assert "new code" in moved(looks)


def test_few_turns_do_not_tell_yet() -> None:
    assert "new code" in moved(heartbeat(6))


def test_another_thread_at_work_counts() -> None:
    works = [
        replace(
            one,
            threads=(*one.threads, Thread(WORKER, "w", True, False, stack(("load", n)))),
            kernel=(*one.kernel, task(WORKER)),
        )
        for n, one in enumerate(heartbeat(30))
    ]
    assert "load" in moved(works)


def child(at: float, age: float, parent: int = PID) -> Look:
    return Look(at, 300, parent, "nvidia-smi", ("nvidia-smi", f"--id={at}"), age, "R", "proc")


def test_a_program_that_runs_for_long_counts_whoever_has_started_it() -> None:
    looks = heartbeat(30)
    assert "nvidia-smi" in moved(
        looks, ((child(28.0, 20.0), replace(child(29.0, 21.0), kernel=(task(300, "read"),))),)
    )


def test_the_programs_of_a_thread_that_waits_for_one_after_another_count() -> None:
    """It is in the same place at every look: in the wait for the child."""
    place = (Frame("Popen._try_wait", "subprocess.py", 2004), *stack(("pack_all", 5)))
    works = [
        replace(
            one,
            threads=(*one.threads, Thread(WORKER, "w", False, False, place)),
            kernel=(*one.kernel, task(WORKER, "wait4")),
        )
        for one in heartbeat(30)
    ]
    assert "was started" in moved(works, ((child(29.0, 0.5),),))


# ---- it does not count ---------------------------------------------------------------------------


def test_a_heartbeat_at_ever_new_places_does_not_count() -> None:
    assert "new code" in moved(heartbeat(6))
    assert moved(heartbeat(30)) == ""


def test_so_does_one_whose_rest_is_longer_than_the_time_between_two_looks() -> None:
    looks = []
    for at in range(60):
        turn = at % 4
        looks.append(look(at, sends(at) if turn == 3 else REST, left=3.5 - turn))
    assert moved(looks) == ""


def test_a_short_program_that_it_starts_does_not_count_either() -> None:
    looks = heartbeat(30)
    assert moved(looks, ((child(29.0, 0.5),),)) == ""
    assert "was started" in moved(heartbeat(6), ((child(5.0, 0.5),),))


def test_a_short_program_of_a_worker_counts() -> None:
    """Whoever has started it is at work as well."""
    assert "was started" in moved(heartbeat(30), ((child(29.0, 0.5, parent=200),),))


# ---- whatever the looks --------------------------------------------------------------------------


@given(
    st.lists(
        st.tuples(st.booleans(), st.integers(0, 5), st.floats(0, 9), st.integers(0, 2)), max_size=40
    )
)
def test_only_threads_of_the_last_look_are_dropped_and_never_the_main_one(
    rows: list[tuple[bool, int, float, int]],
) -> None:
    threads, looks = PeriodicThreads(), []
    for at, (rests, line, left, waits) in enumerate(rows):
        looks.append(look(at, REST if rests else sends(line), left, waits=waits))
        threads.note(looks[-1])
    assert threads.find() <= {HELPER}
    kept, _ = threads.drop(looks, ())
    assert len(kept) == len(looks)
    assert all(one.main is not None and one.main.os_id == PID for one in kept)
