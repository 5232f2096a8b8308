"""Where it hangs: the call, the frame and the component, the checkpoint, the process, and what that
waits for.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile

from ..base.checkpoints import Checkpoint
from ..base.identity import RankId
from ..base.native_code import CODE_OF_LIBC, CODE_OF_PYTHON
from ..base.process_facts import Frame
from ..base.rank_facts import JobFacts, RankFacts, describe_exit
from ..base.verdict_facts import CheckpointPlace, Ranks, Wait, Where
from .case import Case, reached_checkpoint
from .process.actor_waits import is_between_calls
from .process.blocked_syscalls import SLEEP_CALLS
from .process.frames import (
    dotted_name,
    frame_owner,
    is_decorator,
    is_injection,
    job_frames,
    module_of,
    unqualified_name,
)
from .process.process_snapshot import ProcessSnapshot
from .process.public_calls import EntryPoint, find_entry_points
from .rank_waits import sort_by_telling
from .single_ranks import is_gone
from .wait_graph import WaitGraph

_OWN_CODE = ("step", "user")
_CALLS_MODULES = re.compile(r"torch/(?:nn/modules/module|_dynamo/eval_frame|_compile)\.py$")

# What Python calls the system calls that it makes without a frame of its own. Only for calls
# that mean one thing: a futex may be any lock. What is read or written is called as the source has
# it, where that is known: files, pipes and terminals have many functions of C for it.
_PYTHON_NAMES = {
    "nanosleep": "time.sleep",
    "clock_nanosleep": "time.sleep",
    "flock": "fcntl.flock",
    "open": "open",
    "openat": "open",
    "openat2": "open",
    "recvfrom": "socket.socket.recv",
    "recvmsg": "socket.socket.recvmsg",
    "connect": "socket.socket.connect",
    "accept": "socket.socket.accept",
    "accept4": "socket.socket.accept",
    "wait4": "os.waitpid",
    "waitid": "os.waitid",
    "read": "os.read",
    "write": "os.write",
    "mkdir": "os.mkdir",
    "mkdirat": "os.mkdir",
    "fsync": "os.fsync",
    "epoll_wait": "select.epoll.poll",
    "epoll_pwait": "select.epoll.poll",
    "epoll_pwait2": "select.epoll.poll",
}

_NAMES_IN_SOURCE = {
    "read": re.compile(r"(?:eventfd_)?read\w*|input|load|recv\w*|copyfileobj|next"),
    "write": re.compile(r"(?:eventfd_)?write\w*|print|flush|dump|send\w*|copyfileobj|close"),
}


def find_call(view: ProcessSnapshot, job: JobFacts, announced: str = "") -> str:
    """Return the innermost telling entry point on the stack; else the outermost library
    function that the innermost code of the job entered; else the C function it is in.
    """
    frames = job_frames(view.frames, job.package)
    if is_between_calls(view.look):
        return _format_public_name(frames[0])
    for frame in frames:
        telling = next((e for e in find_entry_points(frame) if e.telling), None)
        if telling is not None:
            meeting = _find_meeting(frames[frames.index(frame) + 1 :])
            return meeting or telling.named(_find_widest_frame(frame, telling, frames))
    outside = _count_import_frames(frames)
    own = next(
        (
            i
            for i in range(outside, len(frames))
            if frame_owner(frames[i], job.package) in _OWN_CODE
        ),
        len(frames),
    )
    if own == len(frames):
        staged = (
            frame for frame in frames[outside:] if any(e.stage for e in find_entry_points(frame))
        )
        if (stage := next(staged, None)) is not None:
            return _format_public_name(stage)
    if own > outside:
        return _format_public_name(_find_called_function(frames[outside:own]))
    if outside:
        return _format_import(frames[:outside], announced)
    return _find_direct_call(view, frames, job, announced)


def _find_meeting(frames: Sequence[Frame]) -> str:
    """Return the call of the same library, around a telling one, that waits for all workers by it;
    "" where there is none before code of the job.
    """
    for frame in takewhile(lambda one: frame_owner(one, "") == "library", frames):
        for entry in find_entry_points(frame):
            if entry.meets:
                return entry.named(frame)
    return ""


def _find_called_function(frames: Sequence[Frame]) -> Frame:
    """Return the function of a library that the job called: the outermost of `frames`, or what is
    inside the decorators around it and what torch has around each module.
    """
    at = len(frames) - 1
    while at and (is_decorator(frames[at]) or _CALLS_MODULES.search(frames[at].file)):
        at -= 1
    return frames[at]


def _find_widest_frame(frame: Frame, entry: EntryPoint, frames: Sequence[Frame]) -> Frame:
    """Return the outermost frame of the same entry around `frame`, as far as the library goes:
    `from_pretrained` of the class that the job itself called.
    """
    found = frame
    for other in frames[frames.index(frame) + 1 :]:
        if entry.matches(other):
            found = other
        elif frame_owner(other, "") not in ("library", "import"):
            break
    return found if "{class}" in entry.call else frame


def _count_import_frames(frames: Sequence[Frame]) -> int:
    """Return how many of `frames` (innermost first) run because something is being imported.

    A script that trains while it is imported is not importing, as far as anybody cares.
    """
    inside = max((i + 1 for i, f in enumerate(frames) if frame_owner(f, "") == "import"), default=0)
    trains = any(e.container for f in frames[:inside] for e in find_entry_points(f))
    return 0 if trains else inside


def _format_import(frames: Sequence[Frame], announced: str) -> str:
    """Return "import NAME" for frames that end in the import machinery."""
    module = next((f for f in reversed(frames) if f.name == "<module>"), None)
    if module is not None:
        return f"import {module_of(module)}"
    return announced if announced.startswith("import ") else "import"


def _format_public_name(frame: Frame) -> str:
    named = next((e for e in find_entry_points(frame) if e.call), None)
    return named.named(frame) if named else dotted_name(frame)


def _find_direct_call(
    view: ProcessSnapshot, frames: Sequence[Frame], job: JobFacts, announced: str
) -> str:
    """Return the call of a process whose innermost frame is the job's own: a C function."""
    if not frames:
        native = next((f.name for f in view.frames if f.native), "")
        return announced or native or view.call_name
    for frame in frames[1:]:
        enclosing = next((e for e in find_entry_points(frame) if e.container), None)
        if enclosing is not None:
            return enclosing.named(frame)
    inner = frames[0]
    if announced and frame_owner(inner, job.package) == "step":
        return announced
    if view.call_name in SLEEP_CALLS and _is_in_foreign_library(view):
        return inner.calls[0] if len(inner.calls) == 1 else dotted_name(inner)
    caller = view.call.caller if view.call is not None else ""
    is_foreign = caller != "" and CODE_OF_PYTHON.search(caller) is None
    if not view.holds_gil and not is_foreign and view.call_name in _PYTHON_NAMES:
        in_source = _NAMES_IN_SOURCE.get(view.call_name)
        if in_source is None or not inner.calls:
            return _PYTHON_NAMES[view.call_name]
        named = [one for one in inner.calls if in_source.fullmatch(one.rpartition(".")[2])]
        if len(named) == 1:
            return named[0]
    return dotted_name(inner)


def _is_in_foreign_library(view: ProcessSnapshot) -> bool:
    """Return whether the innermost Python code has called a library that is not Python's own, in
    which the process is.
    """
    native = takewhile(lambda frame: frame.native, view.frames)
    return any(
        ".so" in frame.file
        and not (CODE_OF_PYTHON.search(frame.file) or CODE_OF_LIBC.search(frame.file))
        for frame in native
    )


def find_component(
    view: ProcessSnapshot | None,
    facts: RankFacts | None,
    job: JobFacts,
    checkpoint: Checkpoint | None,
) -> str | None:
    """Return the component: of the innermost known call, else of the phase, else of the
    checkpoint.

    A collective or a sleep that the job's own callback makes is the callback's, for that is
    what would have to change.
    """
    frames = job_frames(view.frames, job.package) if view else ()
    if any(is_injection(f, job.package) for f in frames):
        frames = ()  # made to hang at a place: it is that place's, whatever called it there
    for frame in frames:
        found = next((e for e in find_entry_points(frame) if e.component), None)
        if found and not (found.collective and _called_by_the_job(frame, frames, job.package)):
            return found.component
    if view is None and facts is not None and _ended_in_a_collective(facts):
        return "strategy"
    phases = checkpoint.phases if checkpoint else ()
    phase = facts.phase if facts else None
    by_phase = next((p.component for p in phases if p.name == phase), None)
    return by_phase or (checkpoint.component if checkpoint else "") or None


def _ended_in_a_collective(facts: RankFacts) -> bool:
    """Return True if the log of a rank that is gone ends in a collective that it never left: gloo
    aborts a rank that gets more than it has room for, and there is no traceback then.
    """
    operations = [o for log in facts.collectives if log.source == "ring" for o in log.operations]
    last = max((o for o in operations if o.group), key=lambda one: one.at, default=None)
    return facts.left and last is not None and last.done is False


def _called_by_the_job(frame: Frame, frames: Sequence[Frame], package: str) -> bool:
    """Return True if a user's hook called `frame`, with only torch's wrappers in between."""
    for other in frames[frames.index(frame) + 1 :]:
        if "torch/distributed/" in other.file or unqualified_name(other.name) == "wrapper":
            continue
        return frame_owner(other, package) == "user" and _within_hook(other, frames)
    return False


def _within_hook(frame: Frame, frames: Sequence[Frame]) -> bool:
    outside = frames[frames.index(frame) + 1 :]
    return any(e.component == "callbacks" for f in outside for e in find_entry_points(f))


def find_place(
    case: Case, culprit: RankFacts | None
) -> tuple[CheckpointPlace | None, Checkpoint | None]:
    """Return the first checkpoint that not every rank reached, with the culprit's phase."""
    unfinished = [r for r in case.ranks if not r.finished]
    if not unfinished or not case.job.table:
        return None, None
    if any(r.step for r in unfinished):
        return _find_place_in_own_script(unfinished, culprit)
    last = max(c.number for c in case.job.table)
    # A rank without a number that has not started is behind all of them.
    behind = -1 if case.job.unstarted else min(reached_checkpoint(r) for r in unfinished)
    number = min(behind + 1, last)
    checkpoint = next((c for c in case.job.table if c.number == number), None)
    if checkpoint is None:
        return None, None
    there = culprit if culprit and reached_checkpoint(culprit) + 1 == number else None
    if there is None:  # nobody known is to blame: the phase of those that are there
        there = next((r for r in unfinished if reached_checkpoint(r) + 1 == number), None)
    phase = there.phase if there else None
    if phase not in {p.name for p in checkpoint.phases}:
        phase = None
    return CheckpointPlace(number, checkpoint.name, checkpoint.title, phase), checkpoint


def _find_place_in_own_script(
    unfinished: list[RankFacts], culprit: RankFacts | None
) -> tuple[CheckpointPlace | None, Checkpoint | None]:
    """Return the step of a script of the user's own that the culprit is in; where nobody is to
    blame, or it never came so far as to speak, that of the rank that came least far.
    """
    there = culprit
    if there is None or there.step is None:
        there = min((r for r in unfinished if r.step), key=reached_checkpoint)
    step = there.step
    assert step is not None
    return CheckpointPlace(step.shown, step.name, step.title, step.phase), step


def locate_culprit(case: Case, facts: RankFacts, graph: WaitGraph) -> Where:
    """Return which process a rank is, what it said last, and what it is in and waits for."""
    job, view = case.job, case.view(facts)
    call = find_call(view, job, facts.announced) if view is not None else facts.announced
    wait = find_wait_of_culprit(case, facts.rank, graph)
    age = None if facts.last_line_at is None else round(max(0.0, job.now - facts.last_line_at), 1)
    gpu = next((g.index for g in job.machine_of(facts.host).gpus if facts.pid in g.pids), None)
    role = case.server_roles.get(facts.rank, "")
    last = facts.last_line
    ended = describe_exit(facts) if is_gone(facts) and not facts.never_started else ""
    return Where(facts.rank, facts.host, facts.pid, gpu, last, age, call or None, wait, role, ended)


def find_culprit_wait(case: Case, ranks: Ranks, graph: WaitGraph) -> Wait | None:
    """Return what the first culprit waits for; where that is a rank that never came, what the
    others wait for.
    """
    for rank in sort_by_telling(ranks.culprit, case.rank_waits):
        wait = find_wait_of_culprit(case, rank, graph)
        if wait is not None:
            return wait
    never_came = frozenset(ranks.never_started)
    others = ranks.culprit and all(rank in never_came for rank in ranks.culprit)
    waiting = ranks.waiting if others or not ranks.culprit else ()
    return next((w for r in waiting if (w := case.rank_waits[r].wait) is not None), None)


def find_wait_of_culprit(case: Case, rank: RankId, graph: WaitGraph) -> Wait | None:
    """Return what a culprit waits for; of one that is to blame for a process of its own, that
    process.
    """
    found = case.rank_waits.get(rank)
    if found is None or found.wait is None:
        return None
    waits_itself = found.other_awaited and rank in graph.responsible_ranks
    return _make_wait_for_own_process(graph, rank) if waits_itself else found.wait


def _make_wait_for_own_process(graph: WaitGraph, rank: RankId) -> Wait:
    """Return the process that others wait for and that `rank` answers for, as what it waits for."""
    process = graph.responsible_ranks[rank]
    about = next((edge for edge in graph.edges if edge.source == process.name), None)
    detail = f"{about.kind}: {about.evidence}" if about else ""
    assert process.process is not None
    name = process.says.partition(",")[0] or None
    return Wait("process", detail, process.process.pid, name, host=process.process.host)
