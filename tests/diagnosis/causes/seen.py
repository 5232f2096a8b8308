"""Short spellings of what py-spy and the kernel show of workers, threads and native code.

The stacks are those of real processes: Python 3.11, torch 2.13, filelock 4.2, Linux 6.18.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hangbisect.base.process_facts import (
    Descriptor,
    Frame,
    Futex,
    Kernel,
    Look,
    Sample,
    Syscall,
    Thread,
)
from hangbisect.base.rank_facts import RankFacts

from ..made_up import look, rank, stack

FOREVER = (0x7F00, 137, 0, 0, 0, 0xFFFFFFFF)  # futex: FUTEX_WAIT_BITSET, private, no time limit
SHARED = (0x7F00, 9, 0, 0, 0, 0xFFFFFFFF)  # the same, of a lock that processes share
TIMED = (0x7F00, 137, 0, 0x7FFF, 0, 0xFFFFFFFF)

LIBC = "/usr/lib/x86_64-linux-gnu/libc.so.6"
PYTHON = "/usr/lib/libpython3.11.so.1.0"
TORCH = "/venv/lib/python3.11/site-packages/torch/lib"
LOCK = (("lock_PyThread_acquire_lock", PYTHON), ("PyThread_acquire_lock_timed", PYTHON))

FORK = (
    "_MapDatasetFetcher.fetch SP/torch/utils/data/_utils/fetch.py:54",
    "_worker_loop SP/torch/utils/data/_utils/worker.py:374",
    "BaseProcess.run STD/multiprocessing/process.py:108",
    "BaseProcess._bootstrap STD/multiprocessing/process.py:314",
    "Popen._launch STD/multiprocessing/popen_fork.py:71",
    "DataLoader.__iter__ SP/torch/utils/data/dataloader.py:505",
    "<module> train.py:7",
)
LOADER = look(
    "_PollLikeSelector.select STD/selectors.py:415",
    "wait STD/multiprocessing/connection.py:947",
    "Connection._poll STD/multiprocessing/connection.py:440",
    "Queue.get STD/multiprocessing/queues.py:113",
    "_MultiProcessingDataLoaderIter._try_get_data SP/torch/utils/data/dataloader.py:1291",
    "_MultiProcessingDataLoaderIter._get_data SP/torch/utils/data/dataloader.py:1464",
    "_BaseDataLoaderIter.__next__ SP/torch/utils/data/dataloader.py:725",
    "<module> train.py:7",
    call="poll",
    wchan="poll_schedule_timeout.constprop.0",
)


def native(one: Look, *frames: tuple[str, str]) -> Look:
    """The same look with native frames (name, library), innermost first, on its main thread."""
    main = one.threads[0]
    made = tuple(Frame(name, file, 0, native=True) for name, file in frames)
    return replace(one, threads=(replace(main, frames=made + main.frames), *one.threads[1:]))


def worker(*frames: str, pid: int = 300, parent: int = 100, **more: Any) -> Look:
    """A look at a DataLoader's worker that was forked, in `frames` of the dataset."""
    more.setdefault("name", "pt_data_worker")
    more.setdefault("args", FOREVER)
    return look(*frames, *FORK, pid=pid, ppid=parent, **more)


def beside(one: Look, *threads: tuple[str, tuple[str, ...]], **more: Any) -> Look:
    """The same look with more threads of Python: their names and frames; `more` is about how the
    kernel sees them.
    """
    call = more.get("call", "futex")
    syscall = Syscall(0, call, more.get("args", FOREVER), futex=more.get("futex"))
    made = tuple(
        Thread(900 + n, name, False, False, stack(*frames))
        for n, (name, frames) in enumerate(threads)
    )
    tasks = tuple(Kernel(t.os_id or 0, "python", "S", "futex_do_wait", syscall) for t in made)
    return replace(one, threads=(*one.threads, *made), kernel=(*one.kernel, *tasks))


def with_futex(one: Look, owner: int, exists: bool = True) -> Look:
    """The same look with a mutex, in its system call, that `owner` has."""
    main = one.kernel[0]
    assert main.syscall is not None
    call = replace(main.syscall, futex=Futex(0x7F00, 2, owner, exists))
    return replace(one, kernel=(replace(main, syscall=call), *one.kernel[1:]))


def sampled(one: Look, at: float, **more: Any) -> Look:
    """The same look at another moment, with the counters of then."""
    sample = Sample(at=at, pid=one.pid, started=1, state=one.state, cpu=0.0, read=0, written=0)
    return replace(one, at=at, sample=replace(sample, **more))


def pipe(fd: int, *ends: int, path: str = "pipe:[77]") -> Descriptor:
    """A descriptor of a pipe whose other end these processes have."""
    return Descriptor(fd, "pipe", path, other_ends=ends)


def first(one: Look, *children: Look, **more: Any) -> RankFacts:
    """Rank 0 in `one`, with these children; its other threads keep their ids."""
    made = rank(0, one, children=tuple((child,) for child in children), **more)
    seen = made.looks[0]
    return replace(made, looks=(replace(seen, kernel=(seen.kernel[0], *one.kernel[1:])),))
