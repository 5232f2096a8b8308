"""The threads by which the processes of Dask are in touch with one another: the loop of a client,
of a scheduler and of a worker, which tell what they use twice a second, and what samples tasks.
Pure.

What they use of a core tells of no step. A worker's loop is its main thread, and on a machine with
more to do than cores it stands in the run queue for a third of the time: only a look tells it from
a task.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..base.process_facts import Look, Thread

_LOOPS_OF_DASK = (
    ("/distributed/utils.py", "LoopRunner"),
    ("/distributed/nanny.py", "WorkerProcess"),
)


def runs_loop_of_dask(thread: Thread) -> bool:
    """Return whether a thread is the loop of a client of Dask's, of its scheduler or a worker."""
    return any(
        one.file.endswith(file) and name in one.name
        for one in thread.frames
        for file, name in _LOOPS_OF_DASK
    )


def list_threads_in_touch(looks: Sequence[Look]) -> tuple[int, ...]:
    """Return the threads of a process by which Dask's processes are in touch with one another, and
    those that sample what it does, where they do nothing else in most of these looks: what they use
    of a core tells of no step.
    """
    idle: dict[int, int] = {}
    for look in looks:
        for thread in look.threads:
            if thread.os_id and _is_in_touch(thread):
                idle[thread.os_id] = idle.get(thread.os_id, 0) + 1
    return tuple(sorted(tid for tid, seen in idle.items() if seen * 2 > len(looks)))


def _is_in_touch(thread: Thread) -> bool:
    inner = next((frame for frame in thread.frames if not frame.native), None)
    if inner is None:
        return False
    samples = inner.file.endswith("/distributed/profile.py")
    return samples or (inner.file.endswith("/selectors.py") and runs_loop_of_dask(thread))


def is_loop_at_work(looks: Sequence[Look]) -> bool:
    """Return whether the loop of a process of Dask's is on a core in most looks, elsewhere than
    where it waits for the next message.
    """
    at_work = 0
    for look in looks:
        running = {task.tid for task in look.kernel if task.state == "R"}
        loops = (one for one in look.threads if runs_loop_of_dask(one))
        at_work += any(one.os_id in running and not _is_in_touch(one) for one in loops)
    return at_work * 2 > len(looks)
