"""Python itself: the GIL, imports that wait for one another, the loader of libraries.

The family of native code that does not come back is here too: a C function that waits, a signal,
a loop without an end.
"""

from __future__ import annotations

import re
import signal
from itertools import takewhile

from ...base.process_facts import Frame, Thread
from ...base.words import begin_sentence
from ..process.frames import format_frame, frame_owner, innermost_python_frame, module_of
from ..process.public_calls import NATIVE_DISTRIBUTED
from .known_cause import Found, KnownCause, Scene, also, find_frame, need, unless
from .signs import (
    find_called_native_function,
    find_native_frame,
    format_native_function,
    format_place,
    innermost_native_frames,
    is_called_by_ctypes,
    is_of_libc,
    meets_its_peers,
    native_name,
    others_wait_for_it,
    waits_at_a_queue,
    waits_for_one_that_never_came,
)

_IMPORTS = r"<frozen importlib\._bootstrap(?:_external)?>|importlib/_bootstrap(?:_external)?\.py"
_LOADER = r"^(?:_?_?dl(?:open|sym|close)\w*|_dl_\w+|__dlopen|do_dlopen|call_init|rtld_\w+)$"


def _holder(scene: Scene) -> Thread | None:
    """Return the thread that had the GIL in every look, if it is not at work in Python."""
    view = scene.view
    if view is None or view.owner is None:
        return None
    tid = view.owner.os_id
    kernel = next((k for k in view.look.kernel if k.tid == tid), None)
    if kernel is not None and kernel.state == "R":
        return None
    return view.owner


def _other_threads(scene: Scene) -> tuple[Thread, ...]:
    view = scene.view
    return tuple(t for t in view.threads if t is not view.main) if view is not None else ()


def _importing(frames: tuple[Frame, ...]) -> str:
    """Return the module that these frames are importing, "" if none."""
    for place, frame in enumerate(frames):
        if frame.name == "<module>" and find_frame(frames[place:], _IMPORTS) is not None:
            return module_of(frame)
        if find_frame((frame,), _IMPORTS, "_find_and_load|_lock_unlock_module"):
            named = dict(frame.locals).get("name", "").strip("'\"")
            if named:
                return named
    return ""


def _waits_for_a_module(frames: tuple[Frame, ...]) -> bool:
    python = tuple(frame for frame in frames if not frame.native)[:3]
    return find_frame(python, _IMPORTS, "acquire|_lock_unlock_module") is not None and any(
        "_ModuleLock" in frame.name or frame.name == "_lock_unlock_module" for frame in python
    )


# ---- signs: the GIL ------------------------------------------------------------------------------


def _has_the_gil(scene: Scene) -> Found | None:
    """A thread has the GIL in every look, and sleeps."""
    holder = _holder(scene)
    if holder is None:
        return None
    frame = innermost_python_frame(holder.frames)
    where = format_frame(frame) if frame is not None else "native code"
    own = scene.view is not None and holder is scene.view.main
    who = "its main thread" if own else f"its thread {holder.name or holder.os_id}"
    values = {"place": where, "thread": begin_sentence(who), "call": where}
    return Found(f"{who} has the GIL in every look, and sleeps in {where}", values)


def _in_native_code(scene: Scene) -> Found | None:
    """A native frame says which function keeps it."""
    holder = _holder(scene)
    frame = find_called_native_function(holder.frames) if holder is not None else None
    if frame is None:
        return None
    return Found(
        f"native frame {format_native_function(frame)}", {"call": format_native_function(frame)}
    )


def _others_want_the_gil(scene: Scene) -> Found | None:
    """Other threads wait for the GIL, or for what that thread should do."""
    view, holder = scene.view, _holder(scene)
    if view is None or holder is None:
        return None
    wanting = []
    for kernel in view.look.kernel:
        call = kernel.syscall
        timed = call is not None and call.name == "futex" and len(call.args) > 3 and call.args[3]
        if timed and kernel.tid != holder.os_id:
            wanting.append(kernel.tid)
    if not wanting:
        return None
    count = len(wanting)
    return Found(f"{count} other thread{'s ask' if count > 1 else ' asks'} for it")


# ---- signs: imports ------------------------------------------------------------------------------


def _waits_for_an_import(scene: Scene) -> Found | None:
    """A thread waits for a module that another thread is importing (_ModuleLock.acquire)."""
    view = scene.view
    for thread in view.threads if view is not None else ():
        if _waits_for_a_module(thread.frames):
            own = view is not None and thread is view.main
            who = "its main thread" if own else f"its thread {thread.name or thread.os_id}"
            module = _importing(thread.frames)
            words = f"{who} waits for the import of {module or 'a module'} by another thread"
            return Found(words, {"waiter": begin_sentence(who), "module": module or "a module"})
    return None


def _who_imports_waits(scene: Scene) -> Found | None:
    """The thread that imports it waits too, for that thread or something else."""
    view = scene.view
    for thread in view.threads if view is not None else ():
        module = _importing(thread.frames)
        if module and not _waits_for_a_module(thread.frames):
            frame = innermost_python_frame(thread.frames)
            own = view is not None and thread is view.main
            who = "its main thread" if own else f"its thread {thread.name or thread.os_id}"
            where = format_frame(frame) if frame is not None else "native code"
            words = f"{who}, which imports {module}, stands in {where}"
            return Found(words, {"importer": who, "place": where, "imported": module})
    return None


def _waits_for_its_thread(scene: Scene) -> Found | None:
    """The importing thread waits for a thread that it started (join, result)."""
    python = tuple(frame for frame in scene.frames if not frame.native)[:4]
    waits = find_frame(python, r"/threading\.py", "join|_wait_for_tstate_lock|wait") or find_frame(
        python, r"concurrent/futures/_base\.py", "result"
    )
    if waits is None or not _importing(scene.frames):
        return None
    return Found(f"the import waits for a thread of its own in {format_frame(waits)}")


def _runs_as_a_program(outside: tuple[Frame, ...]) -> bool:
    """Return whether a module around which these frames are is what was started (`python -m`)."""
    return not outside or outside[0].file == "<frozen runpy>" or "/runpy.py" in outside[0].file


def _stands_in_an_import(scene: Scene) -> Found | None:
    """A rank stands still in the code of a module that it is importing."""
    view = scene.view
    if view is None or view.running or _waits_for_a_module(scene.frames):
        return None
    # Modules of the job's own that train while they are imported are not meant.
    python = [f for f in scene.python if frame_owner(f, scene.job.package) != "import"]
    at = next((n for n, f in enumerate(scene.python) if f.name == "<module>"), None)
    if at is None or not python or _runs_as_a_program(scene.python[at + 1 :]):
        return None
    module = scene.python[at]
    if frame_owner(module, scene.job.package) != "library":
        return None
    name = module_of(module)
    words = f"it stands in {format_frame(python[0])}, while {name} is imported"
    return Found(words, {"module": name, "place": format_frame(python[0])})


# ---- signs: the loader ---------------------------------------------------------------------------


def _in_the_loader(scene: Scene) -> Found | None:
    """A rank waits in the loader of shared libraries (dlopen)."""
    view = scene.view
    if view is None or view.running or view.state == "D":
        return None
    frame = find_native_frame(scene.frames, _LOADER)
    if frame is None or view.call_name != "futex":
        return None
    loads = _importing(scene.frames) or "a library"
    words = f"it waits for a lock in {native_name(frame)}, loading {loads}"
    return Found(words, {"module": loads})


def _another_thread_in_the_loader(scene: Scene) -> Found | None:
    """Another thread is in the loader as well, or has the lock."""
    view = scene.view
    futex = view.call.futex if view is not None and view.call is not None else None
    if futex is not None and futex.owner is not None and futex.owner_exists:
        return Found(f"thread {futex.owner} has the lock", {"other": f"thread {futex.owner}"})
    for thread in _other_threads(scene):
        frame = find_native_frame(thread.frames, _LOADER)
        if frame is not None:
            who = f"thread {thread.name or thread.os_id}"
            return Found(f"{who} is in {native_name(frame)}", {"other": who})
    return None


# ---- causes --------------------------------------------------------------------------------------

CAUSES = (
    KnownCause(
        id="gil-held",
        title="a native call keeps the GIL while it waits",
        signs=(
            need(_has_the_gil, 0.7, proves=True),
            also(_in_native_code, 0.4),
            also(_others_want_the_gil, 0.4),
        ),
        why="{thread} is in {call} and has not given up the GIL: no other thread of Python runs, "
        "no heartbeat, no time limit, no Ctrl-C.",
        avoid=(
            "find out what {call} waits for; a newer version of that library may release the GIL",
            "call it in a process of its own (multiprocessing): can be given up after a time",
        ),
        references=("pytorch/pytorch#100555", "pytorch/pytorch#109074", "horovod/horovod#3352"),
    ),
    KnownCause(
        id="import-deadlock",
        title="imports wait for one another: two threads, each with a module the other wants",
        signs=(
            need(_waits_for_an_import, 0.5),
            need(_who_imports_waits, 0.5),
            also(_waits_for_its_thread, 0.5),
        ),
        why="{waiter} waits until {module} is imported; {importer}, which imports {imported}, "
        "waits in {place}.",
        avoid=(
            "start no threads, pools or downloads while a module is imported: do it in a function",
            "import {module} in the main thread before any thread is started",
        ),
        references=("huggingface/datasets#7756", "ray-project/ray#17980"),
    ),
    KnownCause(
        id="import-stuck",
        title="an import waits for something besides Python",
        signs=(need(_stands_in_an_import, 0.55), unless(_waits_for_an_import)),
        why="Code that runs while {module} is imported does not come back: it stands in {place}.",
        avoid=(
            "`python -X importtime -c 'import {module}'` on that machine: is it always so?",
            "import it later, in the function that needs it, or not on that rank",
        ),
        references=("Garden-AI/rootstock#167", "src-d/modelforge#7"),
    ),
    KnownCause(
        id="loader-deadlock",
        title="two threads wait for each other's lock, one of them that of the library loader",
        signs=(need(_in_the_loader, 0.55), also(_another_thread_in_the_loader, 0.6)),
        why="Loading {module} needs the loader's lock, which another thread has; that one waits "
        "for a lock in turn. It happens now and then only.",
        avoid=(
            "import {module} before anything that starts threads (numpy, torch, jemalloc)",
            "`gdb -p PID -batch -ex 'thread apply all bt'` shows both locks: it pauses the rank",
        ),
        references=("scikit-learn/scikit-learn#29145",),
    ),
)


_SIGNALS = re.compile(r"rt_sigtimedwait|rt_sigsuspend|pause|signalfd4?")
_PYTHON_SIGNALS = re.compile(r"signal_(?:pause|sigwait\w*|sigtimedwait)\w*|sigwait\w*")
# ---- signs ---------------------------------------------------------------------------------------


def _sleeps_in_native_code(scene: Scene) -> Found | None:
    """A rank sleeps in a native function, without the GIL, most of all one that the job's own code
    called.
    """
    view, frame = scene.view, innermost_python_frame(scene.frames)
    if view is None or frame is None or view.running or view.holds_gil or view.state != "S":
        return None
    own = frame_owner(frame, scene.job.package) in ("user", "step") or "ctypes" in frame.file
    native = find_called_native_function(scene.frames)
    foreign = native is not None and (
        not is_of_libc(native) or (own and is_called_by_ctypes(scene.frames))
    )
    if not foreign and not (own and scene.call == "pause"):
        return None
    call = format_native_function(native) if native is not None else f"{scene.call}()"
    place = f", in {scene.call}" if scene.call else ""
    words = f"it sleeps in {call}{place}, called in {format_place(view)}"
    return Found(words, {"call": call}, trust=1.0 if own else 0.6)


def _in_torchs_distributed_code(scene: Scene) -> Found | None:
    """It waits in torch's own code for another rank: a store, a remote call."""
    inside = takewhile(lambda frame: frame.native, scene.frames)
    frame = next((one for one in inside if NATIVE_DISTRIBUTED.match(one.name)), None)
    return Found(f"native frame {format_native_function(frame)}") if frame is not None else None


def _its_thread_meets_its_peers(scene: Scene) -> Found | None:
    """It waits for a thread of its own, which is in a collective."""
    wait = scene.verdict.waits_for
    return Found(wait.detail) if wait is not None and wait.kind == "collective" else None


def _by_ctypes(scene: Scene) -> Found | None:
    """It was called through ctypes or cffi."""
    return Found("it was called through ctypes") if is_called_by_ctypes(scene.frames) else None


def _in_a_library(scene: Scene) -> Found | None:
    """The function is one of a library that is neither Python's nor the C library."""
    native = find_called_native_function(scene.frames)
    if native is None or is_of_libc(native):
        return None
    return Found(f"native frame {format_native_function(native)}")


def _waits_for_a_signal(scene: Scene) -> Found | None:
    """A rank waits for a signal (sigwait, signal.pause)."""
    wait = scene.verdict.waits_for
    is_for_children = wait is not None and wait.kind == "process"  # a shell's `wait`
    if not _SIGNALS.fullmatch(scene.call) or scene.view is None or is_for_children:
        return None
    python = any(_PYTHON_SIGNALS.fullmatch(f.name) for f in innermost_native_frames(scene.frames))
    frame = innermost_python_frame(scene.frames)
    in_module = frame is not None and frame.file.endswith("/signal.py")
    if scene.call == "pause" and not python:
        return None  # C functions that wait for ever do so
    own = next((f for f in scene.python if not f.file.endswith("/signal.py")), None)
    where = format_frame(own) if in_module and own is not None else format_place(scene.view)
    numbers = scene.view.call.signals if scene.view.call is not None else ()
    what = signal.Signals(numbers[0]).name if len(numbers) == 1 and numbers[0] < 32 else "a signal"
    values = {"place": where, "pid": scene.view.look.pid}
    return Found(f"it waits for {what} in {where} ({scene.call})", values)


def _may_be_woken_by_a_timer(scene: Scene) -> Found | None:
    """It catches the signal of an interval timer, of which nothing shows whether it runs."""
    if scene.view is None or not scene.view.look.timer_signals:
        return None
    names = ", ".join(signal.Signals(one).name for one in scene.view.look.timer_signals)
    return Found(f"it catches {names}: a timer of its own may wake it")


def _spins(scene: Scene) -> Found | None:
    """A rank computes in the same few places all the time, and nothing else moves."""
    view, subject = scene.view, scene.subject
    if view is None or subject is None or not view.running or subject.moved:
        return None
    return Found(
        f"it computes in {format_place(view)} in every look",
        {"place": format_place(view), "pid": view.look.pid},
    )


def _spins_in_native_code(scene: Scene) -> Found | None:
    """A native frame says in which function."""
    native = find_called_native_function(scene.frames)
    if native is None:
        return None
    return Found(
        f"native frame {format_native_function(native)}", {"place": format_native_function(native)}
    )


def _past_all_patience(scene: Scene) -> Found | None:
    """It did so for several times the step's deadline, where that is known."""
    is_late = scene.job.ended == "busy" and scene.job.past_deadline is not None
    return Found("far beyond the step's deadline") if is_late else None


# ---- causes --------------------------------------------------------------------------------------

NATIVE_CAUSES = (
    KnownCause(
        id="native-call",
        title="a native function that was called does not come back",
        signs=(
            need(_sleeps_in_native_code, 0.5),
            also(_by_ctypes, 0.3),
            also(_in_a_library, 0.35),
            unless(meets_its_peers),
            unless(_its_thread_meets_its_peers),
            unless(_in_torchs_distributed_code),
            unless(_waits_for_a_signal),
            unless(waits_at_a_queue),
            unless(waits_for_one_that_never_came),
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
        signs=(
            need(_waits_for_a_signal, 0.65),
            also(others_wait_for_it, 0.3),
            unless(_may_be_woken_by_a_timer),
        ),
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
            unless(meets_its_peers),
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
