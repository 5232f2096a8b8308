"""Whether a program that starts ranks itself may start more of them.

A launcher starts all ranks of a node at once. A program that forks or spawns them may read data, or
sleep, before each. One that sleeps in a loop which it leaves only when one of its children has
ended (`polled_children` reads that from its source) starts nobody before that, if they all are
ranks: what else it has started may end at any time, and ranks follow then.
"""

from __future__ import annotations

from collections.abc import Collection

from ..base.command_words import is_resource_tracker
from ..base.deadline import call_with_limit
from ..base.launcher_env import Ancestor
from ..base.proc import read_stat
from ..base.ray_processes import is_service
from .descriptors import parse_socket_inode, read_links, read_sockets
from .kernel import read_thread
from .polled_children import waits_for_ends
from .process import descendants, words_of
from .source_tree import read_source
from .stacks import read_stacks

LIMIT = 2.0  # seconds for the stack and the source of such a program
_SLEEPS = frozenset(["nanosleep", "clock_nanosleep"])
_HEARS = frozenset(["read", "readv", "recvfrom", "recvmsg"])


async def describe_busy_parent(ranks: Collection[int], limit: float = LIMIT) -> str:
    """Return in words which process, the parent of one of these (pids), is not done with starting
    ranks as far as its main thread shows: it sleeps or computes, and waits for nobody. "" for none.

    A rank that is the parent of others is none: it waits for them, or goes on without. Nor is a
    launcher, or Ray, which starts all at once: that it is one its command says, for any program may
    set the variables of torchrun.
    """
    parents = {about.ppid for pid in ranks if (about := read_stat(pid)) is not None}
    for pid in sorted(parents - set(ranks)):
        words = words_of(pid)
        if Ancestor({}, words).launcher or is_service(words):
            continue
        does, is_asleep = _describe_work(pid)
        if does and not (is_asleep and await _waits_for_its_ranks(pid, ranks, limit)):
            return does
    return ""


async def describe_hearing_parent(ranks: Collection[int], limit: float = LIMIT) -> str:
    """Return in words which process, the parent of one of these (pids), waits for what one of them
    is to write into a pipe, or to send over a pair of sockets; "" for none, and for a launcher.
    """
    parents = {about.ppid for pid in ranks if (about := read_stat(pid)) is not None}
    for pid in sorted(parents - set(ranks)):
        words = words_of(pid)
        if pid <= 1 or Ancestor({}, words).launcher or is_service(words):
            continue
        try:
            said = await call_with_limit(_describe_hearing, pid, ranks, limit=limit, key="hears")
        except (OSError, TimeoutError):
            continue
        if said:
            return said
    return ""


def _describe_hearing(pid: int, ranks: Collection[int]) -> str:
    main = read_thread(pid, pid, [])
    call = main.syscall if main is not None else None
    if main is None or call is None or call.name not in _HEARS or call.args[0] >= 1 << 31:
        return ""
    link = read_links(pid).get(call.args[0], "")
    inode = parse_socket_inode(link)
    if inode is not None:
        one = read_sockets().get(inode)
        peer = one.peer_inode if one is not None and one.family == "unix" else None
        wanted = f"socket:[{peer}]" if peer else ""
    else:
        wanted = link if link.startswith("pipe:") else ""
    for rank in ranks if wanted else ():
        if wanted in read_links(rank).values():
            who = f"process {pid} ({main.comm}), which starts the ranks,"
            return f"{who} waits for what process {rank} is to tell it"
    return ""


def _describe_work(pid: int) -> tuple[str, bool]:
    """Return in words what the main thread of such a process does, "" if it waits for somebody;
    and whether it is asleep.
    """
    main = read_thread(pid, pid, []) if pid > 1 else None
    if main is None:
        return "", False
    who = f"process {pid} ({main.comm}), which starts the ranks,"
    if main.state in ("R", "D"):
        return f"{who} {'computes' if main.state == 'R' else 'reads or writes a file'}", False
    is_asleep = main.syscall is not None and main.syscall.name in _SLEEPS
    return (f"{who} sleeps" if is_asleep else ""), is_asleep


async def _waits_for_its_ranks(pid: int, ranks: Collection[int], limit: float) -> bool:
    """Return whether a process that sleeps does so between two looks at whether its ranks have
    ended, as its stack and its source show; False where it has another thread, that may start more,
    or another child.
    """
    if not all(child in ranks or _is_a_helper(child) for child in _list_children(pid)):
        return False
    threads = (await read_stacks(pid, limit=limit)).threads
    frame = next((one for t in threads for one in t.frames if not one.native), None)
    if len(threads) != 1 or frame is None or not frame.file.startswith("/"):
        return False
    try:
        source = await call_with_limit(read_source, frame.file, limit=limit, key=("source of", pid))
    except TimeoutError:
        return False
    return waits_for_ends(source, frame.line)


def _list_children(pid: int) -> list[int]:
    """Return the children of a process that live."""
    known = ((child, read_stat(child)) for child in descendants([pid]))
    return [child for child, about in known if about and about.ppid == pid and about.state != "Z"]


def _is_a_helper(pid: int) -> bool:
    """Return whether a process is one that multiprocessing starts beside the job's own."""
    return is_resource_tracker(words_of(pid))
