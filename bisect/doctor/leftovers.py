"""Processes of an earlier start that nobody ended: they hold GPUs, ports and locks."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..base.addresses import port_of
from ..base.launcher_env import Ancestor
from ..base.launchers import ALONE_BUT_SRUNS
from ..base.proc import list_pids, read_stat
from ..evidence.descriptors import parse_socket_inode, read_links, read_sockets
from ..evidence.lock_and_log_files import read_kernel_locks
from ..evidence.process import uid_of
from .checks import Check, Family, Finding, Setting, ok, problem, warning
from .processes import Process, process, variables_of, words_of

# Every launcher, and Lightning, sets one of these in each rank; children inherit them.
_MARKS = ("LOCAL_RANK", *ALONE_BUT_SRUNS)
# Helpers of ranks that mostly come without them: W&B's core, Python's own children.
_HELPERS = re.compile(r"wandb-core|multiprocessing\.(?:spawn|forkserver|resource_tracker)")
_GPU = re.compile(r"/dev/(?:nvidia(\d+)|kfd)")
_INITS = re.compile(r"systemd|init|tini|dumb-init|docker-init|catatonit|s6-svscan|runit")
_DEEPEST = 40
_MOST = 6  # named


@dataclass(frozen=True)
class Seen:
    """A process as it is looked at here."""

    pid: int
    parent: int
    name: str
    words: tuple[str, ...] = ()
    marked: bool = False  # it has the variables of a rank, or is a helper of one

    @property
    def is_ours(self) -> bool:
        """It is one of hangbisect's own: its monitor leaves its parent on purpose."""
        return any(re.search(r"\b(?:hang)?bisect\b", word) for word in self.words[:8])


@dataclass(frozen=True)
class Left:
    """What a process that was left behind holds."""

    process: Process
    gpus: tuple[int, ...] = ()
    ports: tuple[int, ...] = ()
    locks: int = 0

    @property
    def holds(self) -> str:
        """What it holds, in words; "" for nothing."""
        said = [f"GPU {', '.join(map(str, self.gpus))}"] if self.gpus else []
        said += [f"port {', '.join(map(str, self.ports[:4]))}"] if self.ports else []
        said += [f"{self.locks} lock{'s' * (self.locks > 1)}"] if self.locks else []
        return " and ".join(said)


def read(setting: Setting) -> tuple[Left, ...]:
    """Look through the processes of this user."""
    seen = {one.pid: one for one in _all(set(setting.pids))}
    found = orphans(seen, Ancestor({}, words_of(1)))
    if not found:
        return ()
    sockets, locked = (
        read_sockets(),
        [entry.pid for entry in read_kernel_locks() if not entry.waits],
    )
    ports = {
        one.inode: int(port_of(one.local))
        for one in sockets.values()
        if one.family.startswith("tcp") and one.state == "LISTEN"
    }
    return tuple(_left(pid, ports, locked.count(pid)) for pid in found)


def orphans(seen: Mapping[int, Seen], first: Ancestor) -> tuple[int, ...]:
    """Return the processes of a rank whose launcher is gone: what is above them is the first
    process or a session's, and no launcher. `first` is process 1: in a container it may be one.
    """
    if first.launcher or re.search(r"python", "".join(first.words[:1])):
        return ()
    found = []
    for pid, one in sorted(seen.items()):
        top = one
        for _ in range(_DEEPEST):
            above = seen.get(top.parent)
            if above is None or above.pid == 1 or _INITS.fullmatch(above.name):
                break
            top = above
        is_launcher = Ancestor({}, top.words).launcher is not None
        if one.marked and top.marked and not is_launcher and not one.is_ours:
            found.append(pid)
    return tuple(found)


def _all(above: set[int]) -> Iterator[Seen]:
    """Yield all processes; of other users, and of those above us, no more than their names."""
    mine = os.getuid()
    for pid in list_pids():
        found = read_stat(pid)
        # What is in state D may hold whoever reads its words.
        if found is None or found.state in "ZXD" or pid == os.getpid():
            continue
        if uid_of(pid) != mine:
            yield Seen(pid, found.ppid, found.comm)
            continue
        words = words_of(pid)
        marks = variables_of(pid) if pid not in above else {}
        marked = any(marks.get(name) for name in _MARKS) or is_helper(words)
        yield Seen(pid, found.ppid, found.comm, words, marked)


def is_helper(words: Sequence[str]) -> bool:
    """Return whether a command line is that of a helper of ranks."""
    text = " ".join([*map(os.path.basename, words[:1]), *words[1:5]])
    return bool(_HELPERS.search(text))


def _left(pid: int, ports: Mapping[int, int], locks: int) -> Left:
    try:
        targets: Iterable[str] = read_links(pid).values()
    except OSError:
        targets = ()
    gpus: dict[int, None] = {}
    mine: dict[int, None] = {}
    for target in targets:
        if (device := _GPU.fullmatch(target)) is not None:
            gpus[int(device[1] or 0)] = None
        elif (inode := parse_socket_inode(target)) in ports and inode is not None:
            mine[ports[inode]] = None
    return Left(process(pid), tuple(sorted(gpus)), tuple(sorted(mine)), locks)


# ---- judged --------------------------------------------------------------------------------------


def left_behind(setting: Setting, facts: tuple[Left, ...]) -> Iterator[Finding]:
    """Judge what processes of an earlier start hold; those of one job are told together."""
    holding = [one for one in facts if one.holds]
    port = setting.environ.get("MASTER_PORT", "")
    jobs: dict[tuple[str, tuple[str, ...]], list[Left]] = {}
    for one in sorted(holding, key=lambda one: not one.gpus):
        jobs.setdefault((one.process.name, one.process.words), []).append(one)
    for these in list(jobs.values())[:_MOST]:
        whole = together(these)
        more = f" and {len(these) - 1} like it" if len(these) > 1 else ""
        said = f"{whole.process}{more}: the launcher is gone, and held is {whole.holds}"
        pids = " ".join(str(one.process.pid) for one in these)
        next = f"kill {pids} (kill -9 if it stays), if it is no job of yours"
        serious = bool(whole.gpus) or port in map(str, whole.ports)
        yield problem(said, next) if serious else warning(said, next)
    if len(jobs) > _MOST:
        yield warning(f"{len(jobs) - _MOST} more jobs were left behind", "ps -fu $USER")
    if not holding:
        yield ok("none" + (f" ({len(facts)} that hold nothing)" if facts else ""))


def together(these: Sequence[Left]) -> Left:
    """Return what several processes hold together, as of the first."""
    return Left(
        these[0].process,
        tuple(sorted({gpu for one in these for gpu in one.gpus})),
        tuple(sorted({port for one in these for port in one.ports})),
        sum(one.locks for one in these),
    )


FAMILY = Family(
    "Left behind",
    (
        Check(
            id="leftovers",
            title="no process of an earlier start of yours holds a GPU, a port or a lock",
            why="torchrun that is killed leaves its ranks running: the next start finds its port, "
            "its GPU memory or its locks taken.",
            read=read,
            judge=left_behind,
        ),
    ),
)
