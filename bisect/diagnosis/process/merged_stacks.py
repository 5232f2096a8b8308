"""Stacks of many ranks as one tree: what they share once, and where they fork; and what each child
and each thread is to its rank, by public names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

from ...base.identity import RankId
from ...base.lazy_dataclass import dataclass
from ...base.process_facts import Frame, Look, Thread
from .frames import serves_multiprocessing

StackLines = tuple[str, ...]  # a line a frame, outermost first


@dataclass(frozen=True)
class Branch:
    """A run of frames that several stacks share. Without lines: they go no deeper than the branch
    above, others do.
    """

    depth: int  # of how many branches it is part
    ranks: tuple[RankId, ...]  # one for each stack, in order
    lines: StackLines
    forks: bool  # branches of one more depth follow


def merge_stacks(stacks: Iterable[tuple[RankId, StackLines]]) -> tuple[Branch, ...]:
    """Return the tree of `stacks`, each with its rank; a rank may have several.

    Each branch comes before those that grow from it, and beside one another they stand by their
    first rank. The order in which stacks are given makes no difference.
    """
    # Equal stacks are told by their hash, all at once: there are few different ones.
    alike: dict[StackLines, list[RankId]] = {}
    for rank, stack in stacks:
        alike.setdefault(stack, []).append(rank)
    return tuple(_list_branches({stack: sorted(ranks) for stack, ranks in alike.items()}))


def _list_branches(ranks: Mapping[StackLines, list[RankId]]) -> Iterator[Branch]:
    # A stack of our own: recursions of different depth nest deeper than Python lets us follow.
    todo = [(0, 0, group) for group in reversed(_split_by_line(list(ranks), ranks, 0))]
    while todo:
        depth, begin, group = todo.pop()
        end = _count_shared_lines(group)
        below = _split_by_line(group, ranks, end) if len(group) > 1 else []
        here = sorted(chain.from_iterable(ranks[stack] for stack in group))
        yield Branch(depth, tuple(here), group[0][begin:end], bool(below))
        todo.extend((depth + 1, end, branch) for branch in reversed(below))


def _count_shared_lines(group: Sequence[StackLines]) -> int:
    """Return how many of their first lines all stacks of `group` share."""
    # What the smallest and the largest share, all between them share, too.
    first, last = min(group), max(group)
    most = min(len(first), len(last))
    return next((i for i in range(most) if first[i] != last[i]), most)


def _split_by_line(
    group: Iterable[StackLines], ranks: Mapping[StackLines, list[RankId]], at: int
) -> list[list[StackLines]]:
    """Return `group` by the line at `at`; those that end before it are by themselves."""
    parts: dict[StackLines, list[StackLines]] = {}
    for stack in group:
        parts.setdefault(stack[at : at + 1], []).append(stack)
    return sorted(parts.values(), key=lambda part: (min(ranks[s][0] for s in part), min(part)))


# By a frame that only such a process has: the end of the file's path, and the role.
_BY_FRAME = (
    ("torch/utils/data/_utils/worker.py", "DataLoader worker"),
    ("torch/_inductor/compile_worker/__main__.py", "compile worker"),
    ("multiprocessing/resource_tracker.py", "resource tracker"),
    ("multiprocessing/forkserver.py", "fork server"),
    ("multiprocessing/pool.py", "pool worker"),
    ("concurrent/futures/process.py", "pool worker"),
)
_SERVES = ("resource tracker", "fork server")  # what a fork server forks has its frames as well
# torch names its workers so since 2.1 (torch/utils/data/_utils/worker.py, _worker_loop).
_BY_NAME = (("pt_data_worker", "DataLoader worker"),)
# Threads of pools and services that run nothing of the job while they wait.
_PLUMBING = (
    "/threading.py",
    "/queue.py",
    "/selectors.py",
    "/socketserver.py",
    "/concurrent/futures/thread.py",
    "/multiprocessing/pool.py",
    "/multiprocessing/queues.py",
    "/multiprocessing/connection.py",
    "/multiprocessing/synchronize.py",
    "/asyncio/base_events.py",
    "/asyncio/unix_events.py",
    "/asyncio/runners.py",
    "/tqdm/_monitor.py",
)


def find_role(look: Look) -> str:
    """Return what a descendant of a rank is: "DataLoader worker", else its program's name."""
    by_name = next((role for name, role in _BY_NAME if look.name.startswith(name)), "")
    if by_name:
        return by_name
    frames = look.main.frames if look.main else ()
    serves = serves_multiprocessing(frames)
    for file, role in _BY_FRAME:
        if (role not in _SERVES or serves) and any(frame.file.endswith(file) for frame in frames):
            return role
    return look.name or "a program without a name"


def is_idle_thread(thread: Thread) -> bool:
    """Return True for a thread of a pool that waits for work: no frame of it is anybody's code."""
    python = [frame for frame in thread.frames if not frame.native]
    return bool(python) and not thread.owns_gil and _is_plumbing(python)


def _is_plumbing(frames: Sequence[Frame]) -> bool:
    return all(frame.file.endswith(_PLUMBING) or "<frozen" in frame.file for frame in frames)
