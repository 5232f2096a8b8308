"""What moved between looks. Pure: facts in, sentences out.

Progress is a new place in the code, or payload: bytes of what is waited for, or so many bytes that
nobody polls with them. No progress is the same few places, a heartbeat, a store asked again, a
program started over and over. CPU alone is none either: see `is_busy`. And nothing is that the main
thread's wait cannot depend on (awaited_work.py).

Which bytes are progress: those of what is waited for, and those that nobody polls with.
Measured: a TCPStore master that waits for ever reads 3,816 bytes a second, and that for each
rank that asks it. It answers with as many: traffic that is asked for is as large in both
directions.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby, pairwise

from ..base.command_words import is_resource_tracker
from ..base.compilers import BUSY_SHARE, describe_compiling, measure_cpu_share
from ..base.lazy_dataclass import dataclass
from ..base.library_functions import POLLING_THREADS, SERVICE_THREADS, Role, find_role, has_role
from ..base.process_facts import Descriptor, Kernel, Look, Sample, Socket, Thread
from ..base.process_roles import RAY_SERVICES, is_dask_worker
from ..base.words import format_rate
from .awaited_work import (
    find_feeders,
    is_same_wait,
    keep_children_that_feed,
    keep_what_feeds,
)
from .dask_threads import runs_loop_of_dask
from .kernel import split_words

AwaitedDescriptors = tuple[tuple[str, Descriptor], ...]

ONE_WAY = 8  # so many times more in one direction than in the other is no polling
NET_BULK = 16 * 1024  # bytes a second, sent over a socket that is not waited for
NET_RECEIVED = 2 * 1024  # received; helpers report to servers in bursts, but are told little
TOLD_BY_DASK = 6 * 1024  # each worker what it uses, and asks for its lock again: 3 KiB/s
_LINES_OF_A_WAIT = 1024  # bytes between two looks: "Waiting for READY message ..." by a logger
THREAD_BULK = 64 * 1024  # of one thread of the step: the main one reads or writes, another writes
FILE_BULK = 4 * 1024 * 1024  # of the whole process: helpers that read /proc reach 1 MiB/s
DISK_BULK = 4 * 1024  # really from storage
SAMPLED_BULK = 16 * 1024  # by which a cheap reading says that a process may move
SAMPLED_READS = 48 * 1024  # a scheduler of Dask's reads 17 KiB/s of /proc about itself
FAULTS = 2.0  # page faults a second that waited for storage

_SENDS = split_words(
    "write writev pwrite64 pwritev pwritev2 sendto sendmsg sendmmsg sendfile splice"
)


def find_progress_traffic(
    before: Look, after: Look, waited: AwaitedDescriptors, waits: AwaitedDescriptors
) -> tuple[str, ...]:
    """Return the traffic between two looks that is progress, in words; () for none.

    `waited` and `waits` are the descriptors that the step waited for at the two looks.
    """
    seconds = max(after.at - before.at, 1e-3)
    found = [*_socket_traffic(before, after, (*waited, *waits), seconds)]
    files = [*_file_traffic(waited, waits, seconds), *_thread_traffic(before, after, seconds)]
    if before.sample is not None and after.sample is not None:
        if before.sample.started != after.sample.started:
            return ()
        net = (_network_bytes(before, after, "received"), _network_bytes(before, after, "sent"))
        # With what its children have read and written that ended meanwhile (kernel/exit.c).
        is_own = not any(map(_starts_workers, after.threads))
        if is_dask_worker(after.command):  # its loop reads of /proc what it uses
            waits = waited = ()
        files = files or list(
            _counter_traffic(before.sample, after.sample, (*waited, *waits), net, is_own)
        )
    return (*found, *files)


def _socket_traffic(
    before: Look, after: Look, awaited: AwaitedDescriptors, seconds: float
) -> Iterator[str]:
    old = {one.inode: one for one in before.sockets}
    calls = {one.socket.inode: name for name, one in awaited if one.socket is not None}
    is_of_dask = is_dask_worker(after.command) or any(map(runs_loop_of_dask, after.threads))
    for new in after.sockets:
        known = old.get(new.inode)
        received, sent = _grown_bytes(known, new)
        if RAY_SERVICES & {*new.peer_names}:  # what Ray says of its workers: no object, no answer
            continue
        # One that was opened meanwhile may be a question asked again: only bulk counts.
        call = calls.get(new.inode) if known is not None else None
        if is_of_dask:  # its processes tell one another what they use
            call = None
        least = TOLD_BY_DASK if is_of_dask else NET_RECEIVED
        much = received >= (least if known is not None else NET_BULK) * seconds
        if received > 0 and received >= ONE_WAY * sent and (call or much):
            yield f"receives {format_rate(received, seconds)} from {new.peer or 'a socket'}"
            continue
        much = sent >= NET_BULK * seconds
        if sent > 0 and sent >= ONE_WAY * received and (call in _SENDS or much):
            yield f"sends {format_rate(sent, seconds)} to {new.peer or 'a socket'}"


def _grown_bytes(old: Socket | None, new: Socket) -> tuple[int, int]:
    received = (new.received or 0) - ((old.received or 0) if old else 0)
    sent = (new.sent or 0) - ((old.sent or 0) if old else 0)
    return max(0, received), max(0, sent)


def _network_bytes(before: Look, after: Look, what: str) -> int:
    old = {one.inode: getattr(one, what) or 0 for one in before.sockets}
    return sum(max(0, (getattr(one, what) or 0) - old.get(one.inode, 0)) for one in after.sockets)


def _file_traffic(
    waited: AwaitedDescriptors, waits: AwaitedDescriptors, seconds: float
) -> Iterator[str]:
    """Yield the files that are waited for at both looks, and whose offset moved on."""
    old = {(one.fd, one.path): one.position for _, one in waited}
    for name, one in waits:
        start = old.get((one.fd, one.path))
        if start is not None and one.position is not None and one.position > start:
            verb = "writes" if name in _SENDS else "reads"
            yield f"{verb} {format_rate(one.position - start, seconds)} ({one.path})"


def _thread_traffic(before: Look, after: Look, seconds: float) -> Iterator[str]:
    """Yield what the other threads of the step write. One that waits between its writes is met in
    the same place each time.
    """
    # What they read is not counted: helpers that read /proc reach 1 MiB/s.
    old = {one.tid: one.written for one in list_threads_of_the_step(before)[1:]}
    for one in list_threads_of_the_step(after)[1:]:
        start = old.get(one.tid)
        if start is None or one.written is None:
            continue
        if one.written - start >= THREAD_BULK * seconds:
            yield f"writes {format_rate(one.written - start, seconds)} in a helper thread"


def _counter_traffic(
    before: Sample,
    after: Sample,
    awaited: AwaitedDescriptors,
    net: tuple[int, int],
    is_own: bool = True,
) -> Iterator[str]:
    """Yield what the counters of a process say; `is_own`: all that they count is its own."""
    seconds = max(after.at - before.at, 1e-3)
    pipes = [(name, one) for name, one in awaited if one.kind in ("pipe", "fifo", "tty")]
    reads_pipe = next((one for name, one in pipes if name not in _SENDS), None)
    writes_pipe = next((one for name, one in pipes if name in _SENDS), None)
    main_read = after.main_read - before.main_read
    main_written = after.main_written - before.main_written
    read = max(0, after.read - before.read - net[0])
    written = max(0, after.written - before.written - net[1])
    disk = after.disk_read - before.disk_read if is_own else 0
    if reads_pipe is not None and main_read > 0:
        yield f"reads {format_rate(main_read, seconds)} from {reads_pipe.path}"
    elif disk >= DISK_BULK * seconds:
        yield f"reads {format_rate(disk, seconds)}"
    elif (after.faults - before.faults) >= FAULTS * seconds:
        yield "reads files that are mapped into memory"
    elif max(0, main_read - net[0]) >= THREAD_BULK * seconds:
        yield f"reads {format_rate(main_read, seconds)}"
    elif is_own and read >= FILE_BULK * seconds:
        yield f"reads {format_rate(read, seconds)}"
    if writes_pipe is not None and main_written > 0:
        yield f"writes {format_rate(main_written, seconds)} to {writes_pipe.path}"
    elif max(0, main_written - net[1]) >= THREAD_BULK * seconds:
        yield f"writes {format_rate(main_written, seconds)}"
    elif is_own and written >= FILE_BULK * seconds:
        yield f"writes {format_rate(written, seconds)}"


# (kind, frames as (file, name, line)). Kinds: "main" and "thread" of Python, "kernel" for the main
# thread where Python's is not seen, "file": what its system call is about, "process" for a child:
# its command line.
CodeLine = tuple[str, str, int]
CodePlace = tuple[str, tuple[CodeLine, ...]]

_NO_LINE = -1
_SPAWN_WORDS = "import spawn_main; spawn_main("  # multiprocessing/spawn.py, get_command_line

# Calls in which the main thread may wait for other threads of its process. In another one (recv,
# read, flock, wait4 ...) it waits for something else, and what its helpers do is no progress.
_WAITS_FOR_THREADS = split_words(
    "futex nanosleep clock_nanosleep epoll_wait epoll_pwait epoll_pwait2 select pselect6"
)


@dataclass(frozen=True)
class Movement:
    """What one process did between two looks."""

    seconds: float
    new_places: frozenset[CodePlace] = frozenset()
    share: float = 0.0  # CPU, of one core
    traffic: tuple[str, ...] = ()  # "reads 41 MiB/s", "receives 3 bytes/s from 127.0.0.1:8000"

    @property
    def progress(self) -> bool:
        """Return True if this is more than polling or burning CPU."""
        return bool(self.new_places or self.traffic)

    @property
    def text(self) -> str:
        """Return what it did, without a subject; "" for nothing."""
        parts = list(self.traffic)
        files = sorted(place[1][0][0] for place in self.new_places if place[0] == "file")
        code = [place for place in self.new_places if place[0] != "file"]
        if code:
            parts.append("runs through new code" + _format_new_places(code))
        if files:
            parts.append(f"has got to {files[0]}")
        return ", ".join(parts)


def collect_places(looks: Iterable[Look]) -> frozenset[CodePlace]:
    """Return every place in these looks (of a rank, of its children: each look adds its own).

    Give what was returned for all earlier looks of a step as `seen` below: a loop of ten lines
    has seen them all after some looks, and is then at no new place.
    """
    return frozenset(place for look in looks for place in _places_in_look(look, every=True))


def collect_functions(looks: Iterable[Look]) -> frozenset[CodePlace]:
    """Return the places of these looks without their lines: given as `seen`, no line of the same
    functions is new. For a loop that was called a spin, of which some looks see some lines.
    """
    return frozenset(map(_without_lines, collect_places(looks)))


def _without_lines(place: CodePlace) -> CodePlace:
    kind, code = place
    return kind, tuple((file, name, _NO_LINE) for file, name, _ in code)


def _places_in_look(look: Look, every: bool = False) -> Iterator[CodePlace]:
    # Native frames are left out: only some looks have them. So are the classes of functions, which
    # only py-spy names, and locals: in the same place they may change for ever.
    for thread in look.threads:
        code = ((f.file, f.name.rpartition(".")[2], f.line) for f in thread.frames if not f.native)
        # A function that calls itself for its next try (urllib3's urlopen) gets nowhere by that.
        frames = _without_tries(tuple(line for line, _ in groupby(code)))
        if not frames or (thread.name in SERVICE_THREADS and not every):
            continue
        if runs_loop_of_dask(thread) and not every:  # by which its processes are in touch
            continue
        if thread.os_id == look.pid or thread is look.main:
            yield "main", frames
        elif every or (_helpers_count(look) and not _starts_workers(thread)):
            yield "thread", frames
    if every or look.rung != "py-spy":
        yield from _kernel_place(look)
    for path in _files_of(look):
        yield "file", ((path, "", 0),)
    if every:
        yield _process_place(look)


def _starts_workers(thread: Thread) -> bool:
    """Return whether a thread does nothing but start workers of a pool in place of those that have
    ended: who waits for a result waits for what these do.
    """
    return any(has_role(one.file, one.name, Role.STARTS_WORKERS) for one in thread.frames)


def _without_tries(frames: tuple[CodeLine, ...]) -> tuple[CodeLine, ...]:
    """Return a stack, innermost first, without what a library does in each of its endless tries to
    get a lock, or another's value: that gets nowhere, in however many functions a look finds it.
    """
    asks = [
        at
        for at, (file, name, _) in enumerate(frames)
        if any(has_role(file, name, role) for role in (Role.POLLS_LOCK, Role.SPINS_FOR_OTHERS))
    ]
    if not asks:
        return frames
    file, name, _ = frames[asks[-1]]
    return ((file, name, 0), *frames[asks[-1] + 1 :])


def _kernel_place(look: Look) -> Iterator[CodePlace]:
    if not look.kernel or look.kernel[0].state in "TtZX":
        return
    call = look.kernel[0].syscall
    where = (call.name, "", call.stack) if call is not None else ("running", "", 0)
    yield "kernel", (where,)


def _files_of(look: Look) -> Iterator[str]:
    """Yield the files that system calls of the step are about: on a slow file system a walk over
    many small ones shows the same line and hardly a byte.
    """
    for call in (thread.syscall for thread in list_threads_of_the_step(look)):
        if call is None:
            continue
        files = [call.path or "", *(one.path for one in call.descriptors if one.kind == "file")]
        # Who reads those of the kernel asks after processes: a helper does so all the time.
        yield from (path for path in files if path and not path.startswith(("/proc/", "/sys/")))


def _process_place(look: Look) -> CodePlace:
    # What multiprocessing starts by spawn has its pipe's number among its words.
    words = (re.sub(r"\d+", "#", w) if _SPAWN_WORDS in w else w for w in look.command)
    return "process", tuple((part, "", 0) for part in [*words] or (look.name,))


def _helpers_count(look: Look) -> bool:
    """Return True if the main thread may be waiting for other threads of its process."""
    call = look.kernel[0].syscall if look.kernel else None
    if call is None:
        return not look.kernel
    if call.name in ("poll", "ppoll"):
        return any(one.kind != "socket" for one in call.descriptors)
    return call.name in _WAITS_FOR_THREADS


def compare_looks(before: Look, after: Look, seen: Collection[CodePlace] = ()) -> Movement:
    """Return what a process did between two looks; `seen` as in `collect_places`."""
    seconds = max(after.at - before.at, 1e-3)
    known = collect_places([before]) | frozenset(seen)
    # A look in which py-spy failed has a kernel place that the others do not have.
    python_counts = bool(before.threads) or bool(seen)
    counts = {"kernel": "py-spy" not in (before.rung, after.rung), "file": bool(before.kernel)}
    new = frozenset(
        place
        for place in _places_in_look(after)
        if not {place, _without_lines(place)} & known and counts.get(place[0], python_counts)
    )
    compiling = describe_compiling(before, after)
    return Movement(
        seconds,
        new,
        measure_cpu_share(before.sample, after.sample),
        (
            *((compiling,) if compiling else ()),
            *find_progress_traffic(
                before, after, find_awaited_descriptors(before), find_awaited_descriptors(after)
            ),
        ),
    )


def find_awaited_descriptors(look: Look) -> tuple[tuple[str, Descriptor], ...]:
    """Return the descriptors that the step waits for, each with the name of the call it is in."""
    return tuple(
        (thread.syscall.name, one)
        for thread in list_threads_of_the_step(look)
        if thread.syscall is not None
        for one in thread.syscall.descriptors
    )


def list_threads_of_the_step(look: Look) -> tuple[Kernel, ...]:
    """Return the threads in which the step may wait: the main one, and those of Python that it may
    be waiting for.
    """
    if not look.kernel or not _helpers_count(look):
        return look.kernel[:1]
    # Threads without Python (a store's server, gloo, OpenMP) serve others.
    python = {
        thread.os_id
        for thread in look.threads
        if thread.name not in SERVICE_THREADS and not _starts_workers(thread)
    }
    return (look.kernel[0], *(one for one in look.kernel[1:] if one.tid in python))


def describe_movement(
    looks: Sequence[Look],
    children: Sequence[Sequence[Look]] = (),
    seen: Collection[CodePlace] = (),
) -> str:
    """Return in words what moved of a process and its children, "" if nothing did.

    Each sequence is of one process, oldest first. With one look nothing can be told.
    """
    there = (one[0] for one in children if one and looks and not _born_after(one[0], looks[0]))
    known = frozenset((*seen, *map(_process_place, there)))
    parts = [_describe_last_movement(looks, known, [one[-1] for one in children if one])]
    for child in keep_children_that_feed(looks, children):
        if not child or is_resource_tracker(child[0].command):
            continue
        about = f"its child {child[0].name} ({child[0].pid})"
        if looks and _born_after(child[0], looks[0]) and _process_place(child[0]) not in known:
            parts.append(f"{about} was started")
        elif text := _describe_last_movement(child, known) or _describe_output(looks, child):
            parts.append(f"{about} {text}")
    return "; ".join(part for part in parts if part)


def _describe_last_movement(
    looks: Sequence[Look], seen: frozenset[CodePlace], children: Sequence[Look] = ()
) -> str:
    text = ""
    for before, after in pairwise(looks):
        seen |= collect_places([before])
        text = _describe_going_on(before, after) or text
        if is_same_wait(before, after) and not find_feeders(after, children).own_threads:
            before, after = keep_what_feeds(before, after)
        text = compare_looks(before, after, seen).text or text
    return text


def _describe_going_on(before: Look, after: Look) -> str:
    """Return in words that a process ran after it had been stopped by a signal, "" if it did not:
    whoever limits its share of a core so (cpulimit) lets it go on again and again.
    """
    old, new = before.sample, after.sample
    if before.state != "T" or old is None or new is None or old.started != new.started:
        return ""
    return "is stopped, and let go on again" if new.cpu > old.cpu else ""


def _describe_output(looks: Sequence[Look], child: Sequence[Look]) -> str:
    """Return what a child writes while a thread of its parent reads from a pipe of which it has the
    other end: of what a helper thread reads the kernel keeps no count of its own. A line now and
    then by a loop of Python's that waits in one place says only that it waits.
    """
    pipes = [
        one.path
        for name, one in (find_awaited_descriptors(looks[-1]) if looks else ())
        if one.kind in ("pipe", "fifo") and name not in _SENDS and child[-1].pid in one.other_ends
    ]
    for before, after in pairwise(child) if pipes else ():
        old, new = before.sample, after.sample
        if old is None or new is None or old.started != new.started:
            continue
        written = new.main_written - old.main_written
        if written > (_LINES_OF_A_WAIT if _stands_in_python(before, after) else 0):
            rate = format_rate(written, max(new.at - old.at, 1e-3))
            return f"writes {rate} to {pipes[0]}"
    return ""


def _stands_in_python(before: Look, after: Look) -> bool:
    """Return whether the main thread waits at both looks, and at the same lines of Python."""
    mains = [look.main for look in (before, after)]
    stacks = [tuple(f for f in main.frames if not f.native) for main in mains if main is not None]
    waits = all(look.state == "S" for look in (before, after))
    return waits and len(stacks) == 2 and bool(stacks[0]) and stacks[0] == stacks[1]


def _born_after(child: Look, first: Look) -> bool:
    # Starts are known to a clock tick (10 ms) only.
    return child.state not in ("", "Z", "X") and child.at - child.age > first.at + 0.02


def describe_computing(looks: Sequence[Look], children: Sequence[Sequence[Look]] = ()) -> str:
    """Return who burns CPU, in words ("computes (97 % of a core)"), "" if nobody does."""
    parts = []
    for index, one in enumerate([looks, *children]):
        if sum(map(_spins_for_others, one)) * 2 > len(one):
            continue
        share = measure_cpu_share(one[0].sample, one[-1].sample) if len(one) > 1 else 0.0
        if share >= BUSY_SHARE or _is_mostly_running(one):
            subject = f"its child {one[0].name} ({one[0].pid}) " if index else ""
            parts.append(f"{subject}computes ({share:.0%} of a core)".replace("%", " %"))
    return "; ".join(parts)


def _spins_for_others(look: Look) -> bool:
    """Return whether a thread of a process asks without a pause for what another process is to
    give, and no further one that the kernel has on a core is in Python code.
    """
    spinning = {
        thread.os_id
        for thread in look.threads
        if find_role(thread.frames, Role.SPINS_FOR_OTHERS) is not None
    }
    python = {thread.os_id for thread in look.threads}
    running = {one.tid for one in look.kernel if one.state == "R"}
    return bool(spinning) and not (running & python) - spinning


def _is_mostly_running(looks: Sequence[Look]) -> bool:
    """Whether a thread that does not only poll was on a core, or waiting for one, in most looks: on
    a loaded machine what computes gets a small share of a core.
    """
    running = sum(
        any(one.state == "R" and one.comm not in POLLING_THREADS for one in look.kernel)
        for look in looks
    )
    return len(looks) > 1 and running * 2 > len(looks)


def is_busy(
    looks: Sequence[Look],
    children: Sequence[Sequence[Look]] = (),
    moved: str = "",
) -> bool:
    """Return True if CPU is burnt over all the looks, and nothing `moved` (`describe_movement`):
    honest work, or a spin.
    """
    return not moved and bool(describe_computing(looks, children))


def compare_samples(before: Sample, after: Sample) -> str:
    """Return what two cheap readings show ("uses 12 % of a core"), "" if it may stand still.

    Only says when a look is due: what a look shows decides.
    """
    seconds = max(after.at - before.at, 1e-3)
    if before.started != after.started:
        return "is another process"
    share = measure_cpu_share(before, after)
    if share >= 0.05:
        return f"uses {share:.0%} of a core".replace("%", " %")
    for verb, old, new, least in (
        ("reads", before.read, after.read, SAMPLED_READS),
        ("writes", before.written, after.written, SAMPLED_BULK),
        ("receives", before.received or 0, after.received or 0, SAMPLED_BULK),
        ("reads", before.disk_read, after.disk_read, SAMPLED_BULK),
    ):
        if new - old >= least * seconds:
            return f"{verb} {format_rate(new - old, seconds)}"
    return ""


def _format_new_places(new: Collection[CodePlace]) -> str:
    first = min(new, key=lambda place: (place[0] != "main", place))
    if first[0] == "kernel":
        return f" (in {first[1][0][0]})"
    file, name, line = first[1][0]
    return f" ({name}, {file.rpartition('/')[2]}:{line})"
