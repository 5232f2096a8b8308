"""Signs that several causes share, what makes more of the same kind, and what signs read off
processes: the workers and other children of a rank above all.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from ...base.identity import ProcessId, RankId
from ...base.library_functions import Role, find_role
from ...base.native_code import CALLS_FOR_PYTHON, CODE_OF_LIBC, CODE_OF_PYTHON
from ...base.process_facts import (
    Descriptor,
    Frame,
    Look,
    Socket,
    list_queue_sockets,
    waits_at_queue,
)
from ...base.process_roles import find_server_process
from ...base.rank_facts import THREAD_ENDED, Collective, RankFacts
from ...base.words import format_ranks
from ..exit_words import describe_end
from ..process.frames import (
    format_frame,
    format_innermost_frame,
    frame_owner,
    innermost_python_frame,
    is_service_thread,
)
from ..process.helper_processes import find_dead_helper, has_failed, may_keep
from ..process.process_snapshot import ProcessSnapshot
from .known_cause import Found, LooksFor, Scene, describe_sign, find_frame

_FORK = r"multiproc?ess(?:ing)?/popen_fork\.py"
_FUTEX_OPERATION, _FUTEX_TIME_LIMIT = 1, 3  # which arguments of futex() these are
_PRIVATE = 128  # FUTEX_PRIVATE_FLAG (linux/futex.h): only threads of the same process can wake it


_FRAME_OF_TRACEBACK = re.compile(r'^ +File ".+", line \d+, in ')
_EXCEPTION = re.compile(r"^[A-Za-z_][\w.]*(?:: |$)")
_MOST_OF_A_LINE = 120


def raised_before(scene: Scene) -> Found | None:
    """A step or a collective of the culprit raised an exception, or it wrote the traceback of one,
    which no other rank did, and it waits for its peers since then.
    """
    subject, place = scene.subject, innermost_python_frame(scene.python)
    if subject is None or place is None or scene.group != "collective":
        return None
    raised = subject.raised
    # Where others did without the same step as well it is no difference between them.
    if any(one.raised == raised for one in scene.living if one not in scene.culprits):
        raised = ""
    raised = raised or _find_raised_collective(scene, subject)
    wrote = "" if raised else _find_written_exception(scene, subject)
    if not raised and not wrote:
        return None
    own = next((f for f in scene.python if frame_owner(f, scene.job.package) == "user"), place)
    values = {"place": format_frame(own)}
    if wrote:
        return Found(f'it wrote "{wrote}" at the end of a traceback', values, doubtful=True)
    return Found(f"{raised} raised an exception before", values)


def _find_written_exception(scene: Scene, subject: RankFacts) -> str:
    """Return the last line of a traceback that a rank wrote itself, among the last lines that it
    wrote, "" if it did not, if another rank did too, or if a thread of its own ended by it.
    """
    others = (one for one in scene.living if one.rank != subject.rank)
    if any(map(_find_end_of_traceback, others)):
        return ""
    return _find_end_of_traceback(subject)


def _find_end_of_traceback(facts: RankFacts) -> str:
    is_inside = False
    for line in facts.output:
        if line.startswith(THREAD_ENDED):
            return ""
        if _FRAME_OF_TRACEBACK.match(line):
            is_inside = True
        elif is_inside and not line.startswith(" "):
            return line[:_MOST_OF_A_LINE] if _EXCEPTION.match(line) else ""
    return ""


def _find_raised_collective(scene: Scene, subject: RankFacts) -> str:
    """Return in words the collective that raised on a rank and in which another one still waits, by
    their own logs; "" where there is none.
    """
    ours = {_number_operation(one) for one in _own_operations(subject) if one.raised}
    waits = (
        one
        for other in scene.living
        if ours and other not in scene.culprits
        for one in _own_operations(other)[-1:]
        if one.done is False
    )
    found = next((one for one in waits if _number_operation(one) in ours), None)
    return f"{found.kind} ({found.site})" if found is not None else ""


def _own_operations(facts: RankFacts) -> tuple[Collective, ...]:
    return next((log.operations for log in facts.collectives if log.source == "ring"), ())


def _number_operation(one: Collective) -> tuple[str, str, int]:
    return one.group, one.kind, one.number


def is_forked(view: ProcessSnapshot) -> bool:
    """Return True for a process that its parent forked and that never started a program."""
    by_fork = find_frame(view.frames, _FORK, "_launch") is not None or _prepares_a_program(view)
    return by_fork or (view.look.name.startswith("pt_data_worker") and not _is_spawned(view))


def _prepares_a_program(view: ProcessSnapshot) -> bool:
    """Return whether a process runs Python between fork and exec: what subprocess was given as
    preexec_fn. Its parent stands in the same call, but in no Python further in.
    """
    python = tuple(frame for frame in view.frames if not frame.native)
    return find_frame(python[1:], r"/subprocess\.py", "_execute_child") is not None


def _is_spawned(view: ProcessSnapshot) -> bool:
    return find_frame(view.frames, r"multiprocessing/(?:spawn|forkserver)\.py") is not None


def find_forked_processes(scene: Scene) -> tuple[ProcessSnapshot, ...]:
    """Return the forked processes among the subject and its descendants: of these also what the
    job has forked itself (os.fork), as the kernel tells.
    """
    own = [scene.view] if scene.view is not None and is_forked(scene.view) else []
    below = (v for v in scene.workers if is_forked(v) or (v.look.is_forked and not _is_spawned(v)))
    return (*below, *own)


def format_process(look: Look) -> str:
    """Return a process in words: "pt_data_worker (4711)"."""
    return f"{look.name} ({look.pid})"


def innermost_native_frames(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """Return the native frames inside the innermost Python frame, innermost first."""
    python = innermost_python_frame(frames)
    return frames if python is None else frames[: frames.index(python)]


def find_native_frame(frames: tuple[Frame, ...], function: str, library: str = "") -> Frame | None:
    """Return the innermost native frame, inside Python's, whose function's name or whose library's
    path has the pattern.
    """
    for frame in innermost_native_frames(frames):
        if re.search(function, frame.name) or (library and re.search(library, frame.file)):
            return frame
    return None


def find_called_native_function(frames: tuple[Frame, ...]) -> Frame | None:
    """Return the native function that Python, or ctypes for it, called: one of a library rather
    than of the C library; None if all there is is Python's own.
    """
    named = [
        frame
        for frame in innermost_native_frames(frames)
        if not frame.name.startswith("0x")
        and not CODE_OF_PYTHON.search(frame.file)
        and not CALLS_FOR_PYTHON.search(frame.file)
    ]
    own = [frame for frame in named if not CODE_OF_LIBC.search(frame.file)]
    return next(iter(own), None) or next(reversed(named), None)


def is_called_by_ctypes(frames: tuple[Frame, ...]) -> bool:
    """Return True if the innermost Python frame called C through ctypes or cffi."""
    return any(CALLS_FOR_PYTHON.search(frame.file) for frame in innermost_native_frames(frames))


def library_of(frame: Frame) -> str:
    """Return the path of the library that has a native frame's code."""
    return frame.library or frame.file


def is_of_libc(frame: Frame) -> bool:
    """Return True for a function of the C library."""
    return CODE_OF_LIBC.search(library_of(frame)) is not None


def format_native_function(frame: Frame) -> str:
    """Return a native function in words: "ncclCommInitRank (libnccl.so.2)"."""
    name = frame.name.partition("(")[0].partition("<")[0][:80]
    library = library_of(frame).rpartition("/")[2]
    return f"{name} ({library})" if library else name


def has_one_working_thread(view: ProcessSnapshot) -> bool:
    """Return True if a process has one thread, besides such as serve a library and wait."""
    serving = {thread.os_id for thread in view.threads if is_service_thread(thread)}
    return len([task for task in view.look.kernel if task.tid not in serving]) == 1


def sleeps_for_ever(view: ProcessSnapshot) -> bool:
    """Return True if the main thread is in a futex that only its own process can wake, without a
    time limit.
    """
    args = view.call.args if view.call is not None else ()
    if view.call_name != "futex" or len(args) <= _FUTEX_TIME_LIMIT or view.running:
        return False
    private = bool(args[_FUTEX_OPERATION] & _PRIVATE)
    return private and args[_FUTEX_TIME_LIMIT] == 0


def find_blocked_processes(scene: Scene) -> tuple[ProcessSnapshot, ...]:
    """Return the subject and those that it waits for, one after another: its descendants, and what
    was started beside the ranks.
    """
    if scene.view is None or scene.subject is None:
        return ()
    known = {**scene.beside, **{view.look.pid: view for view in scene.workers}}
    links = scene.graph.list_awaited() if scene.graph else {}
    found = [scene.view]
    pid = _find_awaited_child(scene, known)
    while pid in known:
        found.append(known.pop(pid))
        awaited = links.get(ProcessId(scene.subject.host, pid), ())
        # It may wait for the rank as well, or for another rank's.
        own = (one.pid for one in awaited if one.host == scene.subject.host)
        pid = next((p for p in own if p in known and not may_keep(found[-1], known[p])), None)
    return tuple(found)


def _find_awaited_child(scene: Scene, known: Collection[int]) -> int | None:
    """Return the descendant that the subject waits for: as the verdict has it, else whoever has the
    other end of a pipe or socket that its system call is about.
    """
    wait = scene.verdict.waits_for
    if wait is not None and wait.pid in known and wait.kind in ("process", "pipe", "socket"):
        return wait.pid
    for one in find_used_descriptors(scene, scene.view) if scene.view is not None else ():
        ends = one.socket.peer_pids if one.socket is not None else one.other_ends
        for pid in ends:
            if pid in known:
                return pid
    return None


def format_place(view: ProcessSnapshot) -> str:
    """Return in words where a process is: its innermost Python frame, else the system call."""
    frame = innermost_python_frame(view.frames)
    return (
        format_frame(frame) if frame is not None else view.call_name or view.wchan or "unknown code"
    )


def format_owner(scene: Scene, view: ProcessSnapshot) -> str:
    """Return one of the blocked processes in words: "it", or "its child pt_data_worker (4711)"; a
    part of an inference server by its role.
    """
    if scene.subject is not None and view.look.pid == scene.subject.pid:
        return "it"
    beside = view.look.pid in scene.beside
    is_part = beside or find_server_process(view.look.command) is not None
    return f"{'' if is_part else 'its child '}{format_process(view.look)}"


def find_used_descriptors(scene: Scene, view: ProcessSnapshot) -> tuple[Descriptor, ...]:
    """Return the descriptors of its system call, with who has their other ends if any look knows:
    the last look may have had no time to find out.
    """
    now = view.call.descriptors if view.call is not None else ()
    known: dict[str, Descriptor] = {}
    for look in scene.all_looks(view.look.pid):
        main = next((k for k in look.kernel if k.tid == look.pid), None)
        for one in main.syscall.descriptors if main and main.syscall else ():
            if one.other_ends or (one.socket is not None and one.socket.peer_pids):
                known[one.path] = one
    return tuple(known.get(one.path, one) for one in now)


_STREAMS = {0: "its standard input", 1: "its standard output", 2: "its standard error"}


def format_descriptor(one: Descriptor) -> str:
    """Return "its standard input (pipe:[4711])", or the number of any other descriptor."""
    return _STREAMS.get(one.fd, f"descriptor {one.fd}") + f" ({one.path})"


def list_other_ends(one: Descriptor) -> Sequence[int]:
    """Return the pids of those who have the other end of a socket or a pipe."""
    return one.socket.peer_pids if one.socket is not None else one.other_ends


def parent_waits_for_workers(scene: Scene) -> Found | None:
    """A rank waits for what its workers make (DataLoader, Pool, datasets.map)."""
    frame = find_role(scene.frames, Role.AWAITS_WORKERS)
    if frame is None:
        return None
    rank = scene.subject.rank if scene.subject else "?"
    words = f"rank {rank} waits for its workers in {format_frame(frame)}"
    return Found(words, {"rank": rank, "wait": format_frame(frame)})


def a_child_died(scene: Scene) -> Found | None:
    """A process that the rank started has failed or was killed, and is a zombie (wait(2))."""
    if scene.subject is None:
        return None
    for looks in scene.subject.children:
        last = looks[-1] if looks else None
        if last is None or last.status is None or not has_failed(last):
            continue
        how = describe_end(last, scene.machine)
        process = format_process(last) + _place_among_siblings(scene, last)
        return Found(f"{process} {how}", {"worker": process, "how": how})
    return None


def a_helper_died(scene: Scene) -> Found | None:
    """A process that the script which started the ranks has started besides has failed or was
    killed, is a zombie (wait(2)), and was no rank.
    """
    looks = find_dead_helper(scene.ranks)
    last = looks[-1] if looks else None
    if last is None or last.status is None:
        return None
    how, process = describe_end(last, scene.machine), format_process(last)
    return Found(f"{process}, beside the ranks, {how}", {"worker": process, "how": how})


def a_thread_ended(scene: Scene) -> Found | None:
    """It wrote that an exception ended a thread (threading.excepthook), and there is no thread of
    that name.
    """
    subject, view = scene.subject, scene.view
    there = {thread.name for thread in view.threads} if view is not None else set()
    for line in reversed(subject.output if subject is not None else ()):
        name = line.removeprefix(THREAD_ENDED).rstrip(":") if line.startswith(THREAD_ENDED) else ""
        if there and name and name not in there:
            return Found(f'it wrote "{line.rstrip(":")}"', {"gone": f"thread {name} has ended"})
    return None


_STARTED = re.compile(r"/multiproc?ess(?:ing)?/process\.py$")  # what runs in each such child


def _place_among_siblings(scene: Scene, dead: Look) -> str:
    """Return in words which of several that their parent started alike one was that died, by the
    order of their pids: ", the last of 3 workers in work (train.py),"; "" where those that live run
    different functions, or none does.
    """
    functions: dict[int, str] = {}
    for view in scene.workers:
        if view.look.ppid == dead.ppid and any(_STARTED.search(f.file) for f in view.frames):
            own = [f for f in view.frames if frame_owner(f, scene.job.package) == "user"]
            file = own[-1].file.rpartition("/")[2] if own else ""
            functions[view.look.pid] = f"{own[-1].name} ({file})" if own else ""
    dead_too = {
        looks[-1].pid
        for looks in (scene.subject.children if scene.subject is not None else ())
        if looks and looks[-1].state in "ZX" and looks[-1].ppid == dead.ppid
    }
    if len({*functions.values()}) != 1 or "" in functions.values():
        return ""
    (function,) = {*functions.values()}
    order = sorted({*functions, *dead_too})
    at = order.index(dead.pid) + 1
    place = {1: "the first", len(order): "the last"}.get(at, f"number {at}")
    return f", {place} of {len(order)} workers in {function},"


# Where a main thread waits for what a thread is to give.
THREAD_WAIT_FILES = (
    r"concurrent/futures/_base\.py|(?:^|/)(?:threading|queue)\.py|<frozen threading>"
)
# The same, and in the pools that hand tasks to threads.
THREAD_POOL_WAIT_FILES = r"concurrent/futures/\w+\.py|(?:^|/)threading\.py|<frozen threading>"
_TRUST_IF_LOGGED = 0.8  # what a line that was logged is worth, next to the error that ended a rank


def frame_in(file: str, function: str, words: str) -> LooksFor:
    """Return a sign: the subject's main thread is in `function` in `file` (regular expressions, as
    for `Scene.inside`).
    """

    @describe_sign(words)
    def looks_for(scene: Scene) -> Found | None:
        frame = scene.inside(file, function)
        return None if frame is None else Found(f"frame {format_frame(frame)}")

    return looks_for


def native_in(function: str, words: str) -> LooksFor:
    """Return a sign: a native frame of the subject's main thread has a name with `function`."""

    @describe_sign(words)
    def looks_for(scene: Scene) -> Found | None:
        for frame in scene.frames:
            if frame.native and re.search(function, frame.name):
                return Found(f"native frame {native_name(frame)}")
        return None

    return looks_for


def ended_with(pattern: str, words: str) -> LooksFor:
    """Return a sign: the error with which a culprit ended, or its libraries' last lines, match
    `pattern`; its named groups are values.
    """

    @describe_sign(words)
    def looks_for(scene: Scene) -> Found | None:
        found = scene.wrote(pattern)
        if found is None:
            return None
        facts, match = found
        values: dict[str, object] = {k: v for k, v in match.groupdict().items() if v is not None}
        values["rank"] = facts.rank
        quoted = " ".join(match[0].split())[:160]
        if not facts.error:  # one line of many, and perhaps an old one
            return Found(
                f'rank {facts.rank} wrote "{quoted}" before it ended', values, _TRUST_IF_LOGGED
            )
        return Found(f'rank {facts.rank} ended with "{quoted}"', values)

    return looks_for


def makes_a_group(scene: Scene) -> Found | None:
    """A rank waits where a process group is made."""
    if scene.group != "construction":
        return None
    where = format_innermost_frame(scene.frames)
    return Found(f"it waits in {where}, where the process group is made")


def meets_its_peers(scene: Scene) -> Found | None:
    """A rank waits for its peers: where a process group is made, or in a collective."""
    if scene.group not in ("construction", "collective"):
        return None
    where = format_innermost_frame(scene.frames)
    return Found(f"it waits for its peers in {where}")


def waits_for_one_that_never_came(scene: Scene) -> Found | None:
    """Nobody is to blame but ranks that were never started: it shows how another one waits."""
    ranks = scene.verdict.ranks
    if not ranks.culprit or not {*ranks.culprit} <= {*ranks.never_started}:
        return None
    return Found(f"{format_ranks(ranks.culprit)} never came")


def waits_at_a_queue(scene: Scene) -> Found | None:
    """A rank waits for a message (ZeroMQ), and whom it can come from is known."""
    view = scene.view
    if view is None or not waits_at_queue(view.call, view.look.kernel):
        return None
    peers = {pid for one in list_queue_sockets(view.look.kernel) for pid in one.peer_pids}
    if not peers and not view.look.unserved:
        return None
    return Found(f"it waits for a message in {format_place(view)}", {"place": format_place(view)})


def others_wait_for_it(scene: Scene) -> Found | None:
    """Other ranks wait for this one."""
    waiting = scene.waiting_for_it()
    return Found(f"{format_waiting_ranks(waiting)} for it") if waiting else None


def nothing_came(scene: Scene) -> Found | None:
    """No byte came over its connection between the first look and the last."""
    asked = scene.asked
    found = find_silent_connection(
        scene, [(k, s) for k, s in scene.outward if not asked or s in asked]
    )
    # Nothing comes over one that is not in use either.
    return found if asked or found is None else replace(found, trust=0.5)


def find_silent_connection(
    scene: Scene, connections: Iterable[tuple[Look, Socket]]
) -> Found | None:
    """Return that nothing came over one of `connections`, None if something came over all."""
    for look, socket in connections:
        if socket.state != "ESTABLISHED":
            continue
        earlier = [
            one
            for looks in scene.all_looks(look.pid)
            for s in looks.sockets
            if s.inode == socket.inode and (one := s.received) is not None
        ]
        if socket.received == 0 or (len(earlier) > 1 and earlier[0] == earlier[-1]):
            return Found(f"nothing comes from {socket.peer}", {"peer": socket.peer})
    return None


def through_a_proxy(scene: Scene) -> Found | None:
    """The other end of the connection that it waits for is the proxy that a variable names."""
    for socket in scene.awaited:
        name = scene.proxy_at(socket.peer)
        if name:
            return Found(f"{socket.peer} is the proxy of {name}", {"variable": name})
    return None


def format_waiting_ranks(ranks: tuple[RankId, ...]) -> str:
    """Return "rank 1 waits", or "ranks 0,2-3 wait"."""
    return f"{format_ranks(ranks)} wait{'s' if len(ranks) == 1 else ''}"


def native_name(frame: Frame) -> str:
    """Return the name of a function of C or C++ without its arguments."""
    return frame.name.partition("(")[0].partition("<")[0][:80]


_FUTURES = r"concurrent/futures/_base\.py"
_RUNS_CALLBACKS = (r"/asyncio/events\.py", "_run")


def blocks_its_own_loop(scene: Scene) -> Found | None:
    """The main thread waits for a result (Future.result) in what its own event loop runs."""
    python = tuple(frame for frame in scene.frames if not frame.native)
    waits = find_frame(python[:4], _FUTURES, "result")
    run = find_frame(python, *_RUNS_CALLBACKS)
    if waits is None or run is None or scene.call != "futex":
        return None
    if any(one.threads for one in scene.workers):  # one of these may give it
        return None
    own = next((f for f in python if frame_owner(f, scene.job.package) in ("user", "step")), waits)
    place = {"place": format_frame(own)}
    return Found(f"it waits in {format_frame(waits)}, within what its event loop runs", place)
