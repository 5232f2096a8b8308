"""Processes that are stopped, frozen or traced, and children that do not end."""

from __future__ import annotations

import re

from ...base.command_words import has_title, starts_for_multiprocessing
from ...base.process_facts import Look
from ...base.process_roles import find_server_process
from ...base.words import format_seconds
from ..exit_words import describe_exit_status
from ..process.process_snapshot import ProcessSnapshot
from .known_cause import Found, KnownCause, Scene, also, need, unless
from .signs import (
    a_helper_died,
    find_blocked_processes,
    format_owner,
    format_place,
    format_process,
    frame_in,
    others_wait_for_it,
)

CHILD_PROGRAM = "child-program"  # the cause where nothing is known of why a program does not end
# What an interruptible call waits in: nothing leaves it in state D but a freezer of cgroups v1.
CHILD_PROGRAM = "child-program"
_INTERRUPTIBLE = re.compile(
    r"hrtimer_nanosleep|do_nanosleep|futex_\w+|do_sys_poll|poll_schedule_timeout\S*|do_select"
    r"|do_epoll_wait|ep_poll|unix_stream_\w+|sk_wait_data|inet_csk_accept|(?:anon_)?pipe_\w+|do_wait"
)
_FREEZER = re.compile(r"do_freezer_trap|__refrigerator|cgroup_enter_frozen")
_SPAWNS = re.compile(r"kernel_clone|_?do_fork|wait_for_vfork_done")
_WAITS = (r"subprocess\.py", r"os\.py", r"asyncio/\S+\.py", r"sh\.py", r"pexpect/\S+\.py")
_DRIVER_TOOLS = ("nvidia-smi", "rocm-smi", "rocminfo", "nvidia-debugdump", "amd-smi", "xpu-smi")
_SHELLS = frozenset(["sh", "bash", "dash", "env", "timeout"])


def _stopped_view(scene: Scene) -> ProcessSnapshot | None:
    return next((v for v in reversed(find_blocked_processes(scene)) if v.state == "T"), None)


def _traced_view(scene: Scene) -> ProcessSnapshot | None:
    return next((v for v in reversed(find_blocked_processes(scene)) if v.state == "t"), None)


# ---- signs ---------------------------------------------------------------------------------------


def ends_again_and_again(scene: Scene) -> Found | None:
    """A process of the job ended several times, by an error, and one like it was started each time,
    as samples of it or a log that was left say.
    """
    one = scene.job.restarted
    if one is None:
        return None
    span = format_seconds(one.seconds)
    how = f" (one {describe_exit_status(one.status)})" if one.status else ""
    name = one.name or f"what writes {one.file.rpartition('/')[2]}"
    values = {
        "who": f"{name} ({one.pid} was the last)" if one.pid else name,
        "times": one.times,
        "span": span,
        "how": how,
        "said": f": {one.error}" if one.error else "",
        "where": one.file or "what it printed",
    }
    return Found(f"{name} ended {one.times} times within {span}{how}", values)


def waits_for_its_starter(scene: Scene) -> bool:
    """Return whether the rank waits for what the process that has started it is to send, and what
    has died was started by that one.
    """
    wait, view = scene.verdict.waits_for, scene.view
    is_starter = wait is not None and view is not None and wait.pid == view.look.ppid
    return is_starter and a_helper_died(scene) is not None


def _its_log_says_why(scene: Scene) -> Found | None:
    """The last line of a log that it wrote names an error."""
    one = scene.job.restarted
    where = one.file or "what it printed" if one is not None else ""
    return Found(f'{where} ends with "{one.error}"') if one is not None and one.error else None


def _something_ended_it(scene: Scene) -> Found | None:
    """A signal ended it, or an actor in the middle of a method: a program that only says no ends
    with a status.
    """
    one = scene.job.restarted
    if one is None or one.error or not one.is_sure:
        return None
    if one.status is None:
        return Found("it was in the middle of a method of an actor")
    return Found(f"one of them {describe_exit_status(one.status)}")


def _stopped(scene: Scene) -> Found | None:
    """A process is stopped by a signal (state T)."""
    view = _stopped_view(scene)
    if view is None:
        return None
    values = {
        "pid": view.look.pid,
        "who": format_owner(scene, view),
        "name": format_process(view.look),
    }
    return Found(f"{format_owner(scene, view)} is in state T, stopped by a signal", values)


def _still_stopped(scene: Scene) -> Found | None:
    """It was so in every look, and nobody traces it."""
    view = _stopped_view(scene)
    looks = scene.all_looks(view.look.pid) if view is not None else ()
    if not looks or any(look.state != "T" or look.traced_by for look in looks):
        return None
    return Found(
        f"so in {'all ' if len(looks) > 1 else ''}{len(looks)} look(s), and nobody traces it"
    )


def _reads_a_terminal(scene: Scene) -> Found | None:
    """It reads a terminal, which stops a process in the background (SIGTTIN)."""
    view = _stopped_view(scene)
    for one in view.call.descriptors if view is not None and view.call is not None else ():
        if one.kind == "tty" or one.path.startswith(("/dev/pts/", "/dev/tty")):
            return Found(f"it was about to read or write {one.path}", {"terminal": one.path})
    return None


def _traced(scene: Scene) -> Found | None:
    """A debugger keeps a process stopped (state t)."""
    view = _traced_view(scene)
    if view is None:
        return None
    tracer = view.look.traced_by or "another process"
    values = {"pid": view.look.pid, "tracer": tracer, "who": format_owner(scene, view)}
    return Found(f"{format_owner(scene, view)} is in state t", values)


def _tracer_is_known(scene: Scene) -> Found | None:
    """The kernel names the tracer."""
    view = _traced_view(scene)
    if view is None or not view.look.traced_by:
        return None
    return Found(f"process {view.look.traced_by} traces it")


def _frozen(scene: Scene) -> Found | None:
    """A process is frozen with its control group."""
    for view in reversed(find_blocked_processes(scene)):
        values = {"group": view.look.frozen or "its control group", "pid": view.look.pid}
        if view.look.frozen:
            return Found(f"{format_owner(scene, view)} is frozen with {view.look.frozen}", values)
        wchan = view.wchan.partition(".")[0]
        asleep = view.state == "D" and _INTERRUPTIBLE.fullmatch(view.wchan) is not None
        if _FREEZER.fullmatch(wchan) or asleep or (wchan == "get_signal" and view.state == "S"):
            words = f"{format_owner(scene, view)} is in state {view.state} in {view.wchan}: frozen"
            return Found(words, values)
    return None


def _cgroup_says_so(scene: Scene) -> Found | None:
    """Its control group says that it is frozen."""
    found = next((v.look.frozen for v in find_blocked_processes(scene) if v.look.frozen), "")
    return Found(f"{found} is frozen") if found else None


def _waits_for_vfork(scene: Scene) -> Found | None:
    """The kernel keeps a process until the child that it made by vfork runs a program or ends."""
    for view in reversed(find_blocked_processes(scene)):
        if view.state in "DS" and _SPAWNS.fullmatch(view.wchan.partition(".")[0]):
            values: dict[str, object] = {"child": "its child", "place": format_place(view)}
            words = (
                f"{format_owner(scene, view)} waits in {view.wchan} ({view.call_name or 'vfork'})"
            )
            return Found(words, values)
    return None


def _child_of_vfork(scene: Scene) -> Found | None:
    """A child of it is there that still is a copy of it."""
    for view in find_blocked_processes(scene):
        if not _SPAWNS.fullmatch(view.wchan.partition(".")[0]):
            continue
        for child in scene.children:
            same = child.ppid == view.look.pid and child.name == view.look.name
            if same and (not child.command or child.command == view.look.command):
                about = next((v for v in scene.workers if v.look.pid == child.pid), None)
                where = f", in {about.call_name or about.wchan}" if about is not None else ""
                who = f"{format_process(child)}{where}"
                return Found(f"{who} has not started its program", {"child": format_process(child)})
    return None


def _awaited_program(scene: Scene) -> Look | None:
    """Return the program of its own that the subject waits for: of a shell, what that runs."""
    chain = find_blocked_processes(scene)[1:]
    if (
        not chain
        or chain[0].look.pid not in scene.started
        or any(view.threads and view.look.name.startswith("pt_") for view in chain)
    ):
        return None
    direct = chain[0].look
    if find_server_process(direct.command) is not None:
        return None  # the parts of a server are no programs that one can run by hand
    if chain[0].threads and direct.command[:1] == (
        scene.view.look.command[:1] if scene.view else ()
    ):
        return None  # a worker, not a program
    is_worker = starts_for_multiprocessing(direct.command) or has_title(direct.command)
    if is_worker or direct.is_forked:
        return None  # nor are the processes of multiprocessing, and what was only forked
    if _child_of_vfork(scene) is not None:
        return None  # none yet
    program = direct
    while program.name in _SHELLS:
        inside = next((c for c in scene.children if c.ppid == program.pid), None)
        if inside is None:
            break
        program = inside
    return program


def _waits_for_a_program(scene: Scene) -> Found | None:
    """A rank waits for a program that it started (subprocess.run, os.system)."""
    program = _awaited_program(scene)
    found = (scene.frame(file) for file in _WAITS)
    frame = next((frame for frame in found if frame is not None), None)
    waits = scene.call in ("wait4", "waitid") or frame is not None
    if program is None or not waits:
        return None
    line = " ".join(program.command)[:120] or program.name
    values = {"program": program.name, "pid": program.pid, "line": line}
    return Found(f"it waits for its child {format_process(program)}: {line}", values)


def _program_stands_still(scene: Scene) -> Found | None:
    """That program lives, and does not move."""
    program = _awaited_program(scene)
    if program is None or (scene.subject is not None and scene.subject.moved):
        return None
    view = next((v for v in scene.workers if v.look.pid == program.pid), None)
    if view is None or view.running:
        return None
    place = ", ".join(part for part in (view.call_name, view.wchan) if part)
    values = {"where": place or "sleeps"}
    return Found(f"{format_process(program)} stands still ({place or view.state})", values)


def _asks_the_driver(scene: Scene) -> Found | None:
    """The program is one that asks the GPU driver (nvidia-smi, rocm-smi)."""
    program = _awaited_program(scene)
    if program is None:
        return None
    words = " ".join((program.name, *program.command))
    tool = next((tool for tool in _DRIVER_TOOLS if tool in words), "")
    return Found(f"{tool} asks the GPU driver", {"tool": tool}) if tool else None


_in_wandb = frame_in(r"wandb/\S+\.py", r".*", "W&B started it")

# ---- causes --------------------------------------------------------------------------------------

CAUSES = (
    KnownCause(
        id="stopped",
        title="a process is stopped by a signal",
        signs=(
            need(_stopped, 0.75, proves=True),
            also(_still_stopped, 0.45),
            also(_reads_a_terminal, 0.3),
        ),
        why="{name} got SIGSTOP (from a person, a scheduler or a tool that did not let it go on), "
        "or SIGTTIN, which stops what reads a terminal from the background.",
        avoid=(
            "kill -CONT {pid}",
            "look who stops it: `py-spy --native` that was interrupted leaves its target so",
            "a job in the background must not read the terminal: `< /dev/null`",
        ),
        references=("benfred/py-spy#416",),
    ),
    KnownCause(
        id="restarted-in-vain",
        title="a process ends by an error, and is started again each time",
        signs=(
            need(ends_again_and_again, 0.5),
            also(_its_log_says_why, 0.7),
            also(_something_ended_it, 0.6),
        ),
        why="{who} has ended {times} times within {span}{how}, and one like it is started again in "
        "its place{said}. Whoever waits for it waits for ever.",
        avoid=(
            "mend what it says, or look in its own log: {where}",
            "let who starts it give up after some times, with that error",
        ),
        references=(
            "https://docs.kernel.org/admin-guide/cgroup-v2.html#memory",
            "https://pytorch.org/docs/stable/elastic/run.html",
        ),
    ),
    KnownCause(
        id="stopped-by-debugger",
        title="a debugger keeps a process stopped",
        signs=(need(_traced, 0.75, proves=True), also(_tracer_is_known, 0.5)),
        why="Process {tracer} traces {pid} and keeps it stopped: a breakpoint, or a tool that was "
        "left attached.",
        avoid=(
            "let it go on in the debugger (gdb: continue, or detach)",
            "`ps -fp {tracer}` says what it is; when it ends, the process goes on",
        ),
        references=("benfred/py-spy#416",),
    ),
    KnownCause(
        id="frozen",
        title="the job is frozen with its control group: a paused container, a suspended job",
        signs=(need(_frozen, 0.7, proves=True), also(_cgroup_says_so, 0.7)),
        why="{group} is frozen, so no process in it runs; none of them notices.",
        avoid=(
            "`docker unpause CONTAINER`, `scontrol resume JOB`, or whatever suspended it",
            "the container's or batch system's log says who did it",
        ),
        references=("https://docs.kernel.org/admin-guide/cgroup-v2.html",),
    ),
    KnownCause(
        id="vfork-child",
        title="a child made by vfork has neither started its program nor ended",
        signs=(need(_waits_for_vfork, 0.65, proves=True), also(_child_of_vfork, 0.5)),
        why="The kernel keeps whoever calls vfork until the child runs a program or ends. {child} "
        "does neither: its program lies on a dead file system, or its code never gets there.",
        avoid=(
            "look what the child is at: where its program lies (`findmnt`), what runs before exec",
            "subprocess with close_fds=True and without preexec_fn",
        ),
        references=("https://man7.org/linux/man-pages/man2/vfork.2.html",),
    ),
    KnownCause(
        id=CHILD_PROGRAM,
        title="a rank waits for a program that it started, and the program does not end",
        signs=(
            need(_waits_for_a_program, 0.6),
            need(_program_stands_still, 0.5),
            also(_asks_the_driver, 0.4),
            also(others_wait_for_it, 0.1),
            unless(_stopped),
            unless(_in_wandb),
        ),
        why="The rank waits for {program} ({pid}), which stands still in {where}. It was started "
        "as {line}.",
        avoid=(
            "run that line by hand, on this machine, to see what it waits for",
            "nvidia-smi that hangs: `dmesg | grep -i -e xid -e nvrm`; leave that machine out",
            "subprocess.run(..., timeout=60, stdin=DEVNULL): an error in place of silence",
        ),
        references=("rwth-i6/returnn#1756", "NVIDIA/k8s-device-plugin#227", "wandb/wandb#708"),
    ),
)
