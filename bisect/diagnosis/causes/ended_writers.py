"""Pipes whose writer has ended, and closed connections, while others keep that end open."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from ...base.identity import RankId, name_rank
from ...base.process_facts import Descriptor, Look, PipeEnd
from ...base.words import begin_sentence
from ..exit_words import describe_exit_status
from ..process.blocked_syscalls import list_awaited_pids
from ..process.frames import is_service_thread, unqualified_name
from ..process.process_snapshot import ProcessSnapshot
from ..process.request_threads import is_of_a_client
from .known_cause import Found, KnownCause, Scene, also, need
from .pipes import READS, list_uses
from .signs import (
    find_blocked_processes,
    find_used_descriptors,
    format_descriptor,
    format_owner,
    format_place,
    format_process,
    list_other_ends,
)

_READ_OUTPUT = frozenset(["communicate", "_communicate", "check_output"])
_TRUST_IF_A_THREAD_WORKS = 0.65  # a thread of the reader may be who writes
_TRUST_IF_IT_SERVES = 0.65  # a copy that waits for somebody else may be who is to answer there
_TRUST_IF_IT_MAY_END = 0.65  # what has the writing end may be at work, and end


def _end_of_who_is_gone(
    scene: Scene,
) -> tuple[ProcessSnapshot, Descriptor, tuple[Look, ...]] | None:
    """Return the process that reads a pipe, the pipe, and the dead children of that process."""
    families = scene.subject.children if scene.subject is not None else ()
    gone = [looks[-1] for looks in families if looks and looks[-1].state == "Z"]
    kinds = ("pipe", "fifo", "socket")
    for view, one in list_uses(scene, READS, kinds, polls=True) if gone else ():
        dead = tuple(look for look in gone if look.ppid == view.look.pid)
        if _list_ends(scene, one) and dead:
            return view, one, dead
    return None


_UNKNOWN_FD = -1


def _list_ends(scene: Scene, one: Descriptor) -> tuple[PipeEnd, ...]:
    """Return where the other end of a pipe is open, or of a pair of sockets without a name, as
    multiprocessing.Pipe() makes one. () for what anybody may connect to.
    """
    socket = one.socket
    if socket is None:
        return one.ends
    if socket.family != "unix" or socket.local or socket.peer or socket.state != "ESTABLISHED":
        return ()
    parents = {look.pid: look.ppid for look in scene.children}
    names = [*socket.peer_names, *[""] * len(socket.peer_pids)]
    return tuple(
        PipeEnd(pid, _UNKNOWN_FD, name, parents.get(pid, 0))
        for pid, name in zip(socket.peer_pids, names, strict=False)
    )


def _reads_what_a_dead_child_was_to_write(scene: Scene) -> Found | None:
    """A process reads a pipe, a child of it is dead, and the writing end is open only in who does
    not write: itself, idle children, orphans of the dead one.
    """
    found = _end_of_who_is_gone(scene)
    if found is None:
        return None
    view, one, dead = found
    ends = _list_ends(scene, one)
    others = [end for end in ends if end.pid != view.look.pid]
    if not all(_only_keeps_it_open(scene, view, end, dead) for end in others):
        return None
    gone = next((d for d in dead if d.status), dead[0])
    how = describe_exit_status(gone.status) if gone.status is not None else "has ended"
    keepers = [_format_end(end, view.look.pid) for end in ends]
    values = {
        "reader": format_owner(scene, view),
        "pipe": format_descriptor(one),
        "writer": f"{format_process(gone)} {how}",
        "keepers": ", ".join(dict.fromkeys(keepers)),
        "place": format_place(view),
    }
    words = (
        f"{format_owner(scene, view)} reads {format_descriptor(one)}, whose writing end is open "
        f"in {values['keepers']}; {values['writer']}, and is a zombie"
    )
    return Found(words, values, 1.0 if _all_others_wait(view) else _TRUST_IF_A_THREAD_WORKS)


def _reads_an_output_without_end(scene: Scene) -> Found | None:
    """A process reads the output of a program that has ended, in subprocess, to its end; only
    processes that it did not start itself have the writing end.
    """
    families = scene.subject.children if scene.subject is not None else ()
    gone = [looks[-1] for looks in families if looks and looks[-1].state == "Z"]
    for view in reversed(find_blocked_processes(scene)) if gone else ():
        dead = [one for one in gone if one.ppid == view.look.pid]
        outputs = view.call.descriptors if view.call is not None else ()
        ends = [end for one in outputs for end in one.ends]
        strange = all(view.look.pid not in (end.pid, end.ppid) for end in ends)
        if not dead or not outputs or not strange or not all(map(_is_held_pipe, outputs)):
            continue
        if view.call is None or view.call.timeout is not None or not _reads_to_the_end(view):
            continue
        started = max(dead, key=lambda one: one.pid)
        values = {
            "reader": format_owner(scene, view),
            "pipe": format_descriptor(outputs[0]),
            "writer": f"{format_process(started)}, whose output that is, has ended",
            "keepers": ", ".join(dict.fromkeys(_format_end(end, view.look.pid) for end in ends)),
            "place": format_place(view),
        }
        words = (
            f"{values['reader']} reads {values['pipe']} to its end, which is open in "
            f"{values['keepers']}; {values['writer']}"
        )
        return Found(words, values, _TRUST_IF_IT_MAY_END)
    return None


def _is_held_pipe(one: Descriptor) -> bool:
    return one.kind == "pipe" and bool(one.ends)


def _reads_to_the_end(view: ProcessSnapshot) -> bool:
    """Return whether a process is in subprocess.run() or the like, which ends with the output."""
    return any(
        frame.file.endswith("/subprocess.py") and unqualified_name(frame.name) in _READ_OUTPUT
        for frame in view.frames
    )


def _reads_what_nobody_ends(scene: Scene) -> Found | None:
    """A process reads a pipe, its child that was to write is dead, and those who have the end do
    not write; or have it as the output of that child.
    """
    return _reads_what_a_dead_child_was_to_write(scene) or _reads_an_output_without_end(scene)


def _format_end(end: PipeEnd, reader: int) -> str:
    who = "the reader itself" if end.pid == reader else f"{end.name or 'process'} ({end.pid})"
    return who if end.fd == _UNKNOWN_FD else f"{who} as descriptor {end.fd}"


def _only_keeps_it_open(
    scene: Scene, view: ProcessSnapshot, end: PipeEnd, dead: tuple[Look, ...]
) -> bool:
    """Return True for who has inherited the writing end of a pipe, and does not write."""
    if _UNKNOWN_FD < end.fd <= 2:
        return False  # its output goes there
    worker = next((w for w in scene.workers if w.look.pid == end.pid), None)
    if worker is not None and worker.look.ppid in scene.job_pids:
        waits = worker.call is not None and READS.fullmatch(worker.call_name) is not None
        used = find_used_descriptors(scene, worker) if waits and not worker.running else ()
        return any(view.look.pid in list_other_ends(one) for one in used)
    # Its parent is dead: of the same program, for it was forked.
    orphan = end.ppid not in scene.job_pids and (
        worker is not None or end.pid not in scene.job_pids
    )
    idle = worker is None or not worker.running
    return orphan and idle and any(end.name == one.name for one in dead)


def _all_others_wait(view: ProcessSnapshot) -> bool:
    """Return True if no other thread of Python's of a process is at work: it might write."""
    tasks = {task.tid: task for task in view.look.kernel}
    for thread in view.threads:
        if thread is view.main or is_service_thread(thread):
            continue
        task = tasks.get(thread.os_id or 0)
        call = task.syscall if task is not None else None
        if call is None or call.name != "futex" or call.timeout is not None:
            return False
    return True


def _only_the_reader_has_it(scene: Scene) -> Found | None:
    """Nobody but the reader has the writing end; it has no other thread or dead child."""
    found = _end_of_who_is_gone(scene)
    ends = _list_ends(scene, found[1]) if found is not None else ()
    if found is None or any(end.pid != found[0].look.pid for end in ends):
        return None
    alone = len(found[0].look.kernel) == 1 and len(found[2]) == 1
    if not alone:
        return None
    # Which end of the pipe is polled no call says.
    reads = READS.fullmatch(found[0].call_name) is not None
    return Found("no other process has that end", trust=1.0 if reads else 0.9)


class _KeptStream(NamedTuple):
    """A connection from which a rank reads, and the processes that alone have its other end."""

    reader: RankId
    stream: Descriptor
    keepers: tuple[ProcessSnapshot, ...]


def _a_rank_reads_to_an_end_that_a_copy_keeps_open(scene: Scene) -> Found | None:
    """Another rank reads from a connection whose other end only a process has that the culprit has
    forked, which does something else.
    """
    subject, kept = scene.subject, next(_list_kept_streams(scene), None)
    if subject is None or kept is None:
        return None
    reader, keepers = name_rank(kept.reader), kept.keepers
    values = {
        "reader": begin_sentence(reader),
        "stream": format_descriptor(kept.stream),
        "rank": subject.rank,
        "copy": ", ".join(format_process(keep.look) for keep in keepers),
    }
    words = (
        f"{reader} reads {values['stream']}, whose other end only {values['copy']} has, which rank "
        f"{subject.rank} has forked and which is in {format_place(keepers[0])}"
    )
    idle = all(subject.pid in list_awaited_pids(keep.look) for keep in keepers)
    return Found(words, values, 1.0 if idle else _TRUST_IF_IT_SERVES, doubtful=True)


def _list_kept_streams(scene: Scene) -> Iterator[_KeptStream]:
    """Yield the connections from which other ranks than the subject read, and whose other end only
    processes have that it has forked, and that take no part in what is said there.
    """
    copies = {one.look.pid: one for one in scene.workers if one.look.is_forked and not one.running}
    for rank, view in scene.views.items():
        if view is scene.view or view.call is None or not READS.fullmatch(view.call_name):
            continue
        for one in view.call.descriptors:
            ends = one.socket.peer_pids if one.socket is not None else ()
            keepers = tuple(copies[pid] for pid in ends if pid in copies)
            if not 0 < len(keepers) == len(ends):
                continue
            if not any(_takes_part(scene, keep, view.look.pid, one) for keep in keepers):
                yield _KeptStream(rank, one, keepers)


def _takes_part(scene: Scene, copy: ProcessSnapshot, reader: int, stream: Descriptor) -> bool:
    """Return whether a forked process takes part in what is said over a connection to `reader`: it
    waits for that, or has taken the connection itself, at a port where it alone listens.
    """
    if any(reader in list_other_ends(one) for one in find_used_descriptors(scene, copy)):
        return True
    if stream.socket is None or scene.view is None:
        return False
    end = replace(stream.socket, local=stream.socket.peer, peer=stream.socket.local)
    return is_of_a_client(end, copy.look) and not is_of_a_client(end, scene.view.look)


# ---- causes --------------------------------------------------------------------------------------

CAUSES = (
    KnownCause(
        id="stream-kept-open",
        title="a connection was closed, and a forked copy of the process keeps it open",
        signs=(need(_a_rank_reads_to_an_end_that_a_copy_keeps_open, 0.85),),
        why="{reader} reads {stream} until its end, which comes when nobody has the other end open "
        "any more. Rank {rank} has closed its own, and {copy}, which it had forked before, still "
        "has it.",
        avoid=(
            "socket.shutdown(SHUT_WR) before close(): the end is sent, whoever has a copy",
            "fork workers before connections are made, or close these in the child",
            "send how long a message is before it, and read no further",
        ),
        references=("https://man7.org/linux/man-pages/man2/shutdown.2.html",),
    ),
    KnownCause(
        id="pipe-writer-gone",
        title="whoever was to write into a pipe has ended, and others keep its end open",
        signs=(
            need(_reads_what_nobody_ends, 0.85),
            also(_only_the_reader_has_it, 0.5, proves=True),
        ),
        why="In {place} {reader} reads {pipe}. {writer}; a reader sees the end of a pipe only when "
        "nobody has its writing end open any more, and it still is in {keepers}.",
        avoid=(
            "look why it ended (its exit status, its own log): the reader only waits for it",
            "close the writing end in the reader as soon as the child has it, and in what is "
            "forked later (close_fds, os.set_inheritable(fd, False))",
            "wait for the child as well as for the pipe: multiprocessing.connection.wait([pipe, "
            "process.sentinel])",
            "what a program leaves in the background gets outputs of its own (> FILE 2>&1, "
            "stdout=subprocess.DEVNULL)",
        ),
        references=(
            "pytorch/pytorch#189290",
            "python/cpython#76116",
            "https://man7.org/linux/man-pages/man7/pipe.7.html",
        ),
    ),
)
