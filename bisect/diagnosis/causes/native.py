"""Native code that does not come back: a C function that waits, a signal, a loop without an end."""

from __future__ import annotations

import re

from ..frames import owner, worded
from .known import Found, KnownCause, also, need, unless
from .processes_seen import (
    called_from_python,
    in_words,
    inner,
    native_part,
    of_libc,
    place,
    through_ctypes,
)
from .scene import Scene
from .signs import meets_its_peers, others_wait_for_it

_SIGNALS = re.compile(r"rt_sigtimedwait|rt_sigsuspend|pause|signalfd4?")
_PYTHON_SIGNALS = re.compile(r"signal_(?:pause|sigwait\w*|sigtimedwait)\w*|sigwait\w*")
# ---- signs ---------------------------------------------------------------------------------------


def _sleeps_in_native_code(scene: Scene) -> Found | None:
    """A rank sleeps in a native function, without the GIL, most of all one that the job's own code
    called.
    """
    view, frame = scene.view, inner(scene.frames)
    if view is None or frame is None or view.running or view.holds_gil or view.state != "S":
        return None
    own = owner(frame, scene.job.package) in ("user", "step") or "ctypes" in frame.file
    native = called_from_python(scene.frames)
    foreign = native is not None and (not of_libc(native) or (own and through_ctypes(scene.frames)))
    if not foreign and not (own and scene.call == "pause"):
        return None
    call = in_words(native) if native is not None else f"{scene.call}()"
    told = f", in {scene.call}" if scene.call else ""
    words = f"it sleeps in {call}{told}, called in {place(view)}"
    return Found(words, {"call": call}, trust=1.0 if own else 0.6)


def _by_ctypes(scene: Scene) -> Found | None:
    """It was called through ctypes or cffi."""
    return Found("it was called through ctypes") if through_ctypes(scene.frames) else None


def _in_a_library(scene: Scene) -> Found | None:
    """The function is one of a library that is neither Python's nor the C library."""
    native = called_from_python(scene.frames)
    if native is None or of_libc(native):
        return None
    return Found(f"native frame {in_words(native)}")


def _waits_for_a_signal(scene: Scene) -> Found | None:
    """A rank waits for a signal (sigwait, signal.pause)."""
    if not _SIGNALS.fullmatch(scene.call) or scene.view is None:
        return None
    python = any(_PYTHON_SIGNALS.fullmatch(f.name) for f in native_part(scene.frames))
    frame = inner(scene.frames)
    in_module = frame is not None and frame.file.endswith("/signal.py")
    if scene.call == "pause" and not python:
        return None  # C functions that wait for ever do so
    own = next((f for f in scene.python if not f.file.endswith("/signal.py")), None)
    where = worded(own) if in_module and own is not None else place(scene.view)
    values = {"place": where, "pid": scene.view.look.pid}
    return Found(f"it waits for a signal in {where} ({scene.call})", values)


def _spins(scene: Scene) -> Found | None:
    """A rank computes in the same few places all the time, and nothing else moves."""
    view, subject = scene.view, scene.subject
    if view is None or subject is None or not view.running or subject.moved:
        return None
    return Found(
        f"it computes in {place(view)} in every look", {"place": place(view), "pid": view.look.pid}
    )


def _spins_in_native_code(scene: Scene) -> Found | None:
    """A native frame says in which function."""
    native = called_from_python(scene.frames)
    if native is None:
        return None
    return Found(f"native frame {in_words(native)}", {"place": in_words(native)})


def _past_all_patience(scene: Scene) -> Found | None:
    """It did so for several times the step's deadline."""
    return Found("far beyond the step's deadline") if scene.job.ended == "busy" else None


# ---- causes --------------------------------------------------------------------------------------

CAUSES = (
    KnownCause(
        id="native-call",
        title="a native function that was called does not come back",
        signs=(
            need(_sleeps_in_native_code, 0.5),
            also(_by_ctypes, 0.3),
            also(_in_a_library, 0.35),
            unless(meets_its_peers),
            unless(_waits_for_a_signal),
        ),
        why="{call} waits for something outside Python. Other threads go on, so a heartbeat says "
        "that all is well.",
        avoid=(
            "look what that function waits for: a device, a licence, a lock of another process",
            "call it in a process of its own, with a time limit",
        ),
        references=("pytorch/pytorch#52145", "rwth-i6/returnn#1756"),
    ),
    KnownCause(
        id="signal-wait",
        title="a rank waits for a signal that nobody sends",
        signs=(need(_waits_for_a_signal, 0.65), also(others_wait_for_it, 0.3)),
        why="It waits in {place} until somebody sends it a signal. A launcher between it and the "
        "scheduler may not pass signals on.",
        avoid=(
            "`kill -s SIGNAL {pid}`, or have the launcher pass it on (`exec` in shell scripts)",
            "signal.sigtimedwait with a limit, or a handler (signal.signal) in place of waiting",
        ),
        references=("ai2cm/ace#1068",),
    ),
    KnownCause(
        id="busy-loop",
        title="a rank computes without an end in the same place",
        signs=(
            need(_spins, 0.5),
            also(_spins_in_native_code, 0.2),
            also(_past_all_patience, 0.2),
        ),
        why="It has been in {place} all the time, with the CPU busy: a loop that waits by looking, "
        "or work that is far larger than meant.",
        avoid=(
            "`py-spy record --nonblocking -d 10 --pid {pid}` shows where the time goes",
            "with 100 % of a GPU and NCCL on the stack: look at its causes (P2P, ACS) first",
        ),
        references=("Lightning-AI/pytorch-lightning#19425", "NVIDIA/nccl#631"),
    ),
)
