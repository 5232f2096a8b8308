"""Tools and settings for debugging that are the cause themselves."""

from __future__ import annotations

from ..frames import worded
from .addresses import port_of
from .known import Found, KnownCause, also, need, unless
from .processes_seen import blocked, native_frame, whose
from .scene import Scene
from .signs import frame_in, meets_its_peers, native_name

_waits_for_a_client = frame_in(
    r"(?:debugpy|pydevd?|pydevd_\w+|_pydevd_bundle|remote_pdb|rpdb|web_pdb|ptvsd|madbg)\S*\.py"
    r"|(?:debugpy|ptvsd|pydevd)/\S+\.py",
    r"wait_for_client|wait_for_attach|_?settrace|set_trace|listen|accept|__init__|connect",
    "A rank waits until a debugger connects (debugpy, remote_pdb)",
)


def _listens(scene: Scene) -> Found | None:
    """It listens at a port for it."""
    look, store = scene.view and scene.view.look, scene.environment.get("MASTER_PORT")
    listening = [s for s in (look.sockets if look else ()) if s.state == "LISTEN"]
    found = next((s for s in listening if port_of(s.local) != store), None)
    return Found(f"it listens at {found.local}", {"port": found.local}) if found else None


def _stands_in_a_breakpoint(scene: Scene) -> Found | None:
    """Ranks wait for one that is in torch.distributed.breakpoint()."""
    frame = scene.frame(r"torch/distributed/__init__\.py", "breakpoint")
    return None if frame is None else Found(f"frame {worded(frame)}")


def _a_debugger(scene: Scene) -> Found | None:
    """A rank waits for somebody with a debugger."""
    return _waits_for_a_client(scene) or _stands_in_a_breakpoint(scene)


def _detail(scene: Scene) -> Found | None:
    """TORCH_DISTRIBUTED_DEBUG is DETAIL."""
    value = scene.environment.get("TORCH_DISTRIBUTED_DEBUG", "")
    return Found(f"TORCH_DISTRIBUTED_DEBUG={value}") if value.upper() == "DETAIL" else None


def _in_the_extra_group(scene: Scene) -> Found | None:
    """It waits in the extra group that this setting makes (ProcessGroupWrapper)."""
    native = native_frame(scene.frames, r"ProcessGroupWrapper|runCollectiveChecks|monitoredBarrier")
    if native is not None:
        return Found(f"native frame {native_name(native)}")
    frame = scene.frame(r"torch/distributed/distributed_c10d\.py", "_create_process_group_wrapper")
    return None if frame is None else Found(f"frame {worded(frame)}")


def _is_traced(scene: Scene) -> Found | None:
    """A tracer (strace, gdb) is attached to a process that is not stopped."""
    for view in blocked(scene):
        tracer = view.look.traced_by
        if tracer and view.state != "t":
            values = {"tracer": tracer, "pid": view.look.pid}
            return Found(f"process {tracer} traces {whose(scene, view)}", values)
    return None


CAUSES = (
    KnownCause(
        id="waits-for-debugger",
        title="a rank waits for somebody with a debugger",
        signs=(need(_a_debugger, 0.8), also(_listens, 0.4)),
        why="A call for a remote debugger (debugpy.wait_for_client, remote_pdb, "
        "torch.distributed.breakpoint) is in the way, and nobody connects.",
        avoid=(
            "take that call out, or let a variable decide over it that nobody sets in a job",
            "connect to the port at which it listens",
        ),
        references=("https://docs.pytorch.org/docs/stable/distributed.html",),
    ),
    KnownCause(
        id="debug-detail-group",
        title="the debugging of torch.distributed adds a group, and that one hangs",
        signs=(
            need(_detail, 0.35),
            need(meets_its_peers, 0.3),
            also(_in_the_extra_group, 0.5),
        ),
        why="At its highest level that debugging wraps every group in another one over gloo, with "
        "checks of its own before each collective; healthy jobs were seen to hang in it.",
        avoid=("unset TORCH_DISTRIBUTED_DEBUG, or set it to INFO",),
        toggles=(("torch_distributed_debug", "OFF"),),
        references=("pytorch/pytorch#129672",),
    ),
    KnownCause(
        id="tracer-attached",
        title="a tracer is attached to a rank and slows it down",
        signs=(need(_is_traced, 0.7), unless(_a_debugger)),
        why="Process {tracer} traces {pid}: each of its system calls stops it twice.",
        avoid=(
            "`ps -fp {tracer}` says what it is; detach it, or end it",
            "strace --seccomp-bpf -e trace=...: stops for the calls in question only",
        ),
        references=("https://man7.org/linux/man-pages/man1/strace.1.html",),
        outcomes=("slow", "hang", "interrupted"),
    ),
)
