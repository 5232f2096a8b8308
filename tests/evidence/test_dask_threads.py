"""Which threads only have Dask's processes in touch, and when one of their loops is at work."""

from __future__ import annotations

from dataclasses import replace

from hangbisect.base.process_facts import Frame, Kernel, Look, Thread
from hangbisect.evidence.dask_threads import is_loop_at_work, list_threads_in_touch

from ..diagnosis.made_up import look

SELECTS = Frame("EpollSelector.select", "/py/lib/python3.11/selectors.py", 468)
NANNY = Frame("WorkerProcess._run", "/v/site-packages/distributed/nanny.py", 1037)
RUNNER = Frame("LoopRunner._start", "/v/site-packages/distributed/utils.py", 600)
SETUP = Frame("TokenTable.setup", "train.py", 20)
PROFILES = Frame("_watch", "/v/site-packages/distributed/profile.py", 361)
LOOP, PROFILE, TASK = 100, 101, 102


def seen(*loop: Frame, state: str = "S") -> Look:
    """Return a look at a worker: its loop, what samples its tasks, and a task."""
    threads = (
        Thread(LOOP, "MainThread", False, False, loop),
        Thread(PROFILE, "Profile", False, False, (PROFILES,)),
        Thread(TASK, "Dask-Default-Threads-1", False, False, (Frame("work", "train.py", 9),)),
    )
    states = ((LOOP, state), (PROFILE, "S"), (TASK, "S"))
    kernel = tuple(Kernel(tid, "python", one, "", None) for tid, one in states)
    return replace(look(pid=LOOP), threads=threads, kernel=kernel)


def test_the_loop_that_selects_and_what_samples_tasks_are_in_touch_and_a_task_is_not() -> None:
    for below in (NANNY, RUNNER):
        assert list_threads_in_touch([seen(SELECTS, below)] * 4) == (LOOP, PROFILE)


def test_a_loop_that_runs_the_jobs_code_in_most_looks_is_not() -> None:
    looks = [seen(SETUP, NANNY), seen(SETUP, NANNY), seen(SELECTS, NANNY), seen(SETUP, NANNY)]
    assert list_threads_in_touch(looks) == (PROFILE,)
    assert list_threads_in_touch([seen(SELECTS)] * 4) == (PROFILE,)  # of another library
    assert list_threads_in_touch([]) == ()


def test_a_loop_is_at_work_where_it_is_on_a_core_outside_of_its_select() -> None:
    assert is_loop_at_work([seen(SETUP, NANNY, state="R")] * 4)
    assert not is_loop_at_work([seen(SETUP, NANNY)] * 4)  # it stands still there
    assert not is_loop_at_work([seen(SELECTS, NANNY, state="R")] * 4)  # a machine with much to do
    assert not is_loop_at_work([])
