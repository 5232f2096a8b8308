"""Python itself: the GIL, imports that wait for one another, the loader of libraries."""

from __future__ import annotations

from ...facts import Frame, Thread
from ..frames import module_of, owner, worded
from .known import Found, KnownCause, also, need, unless
from .processes_seen import called_from_python, in_words, inner, native_frame
from .scene import Scene, find_frame
from .signs import native_name

_IMPORTS = r"<frozen importlib\._bootstrap(?:_external)?>|importlib/_bootstrap(?:_external)?\.py"
_LOADER = r"^(?:_?_?dl(?:open|sym|close)\w*|_dl_\w+|__dlopen|do_dlopen|call_init|rtld_\w+)$"
_LOADS_LIBRARY = "create_module|_call_with_frames_removed"


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


def _begins(words: str) -> str:
    """Return words as they begin a sentence."""
    return words[:1].upper() + words[1:]


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
    frame = inner(holder.frames)
    where = worded(frame) if frame is not None else "native code"
    own = scene.view is not None and holder is scene.view.main
    who = "its main thread" if own else f"its thread {holder.name or holder.os_id}"
    values = {"place": where, "thread": _begins(who), "call": where}
    return Found(f"{who} has the GIL in every look, and sleeps in {where}", values)


def _in_native_code(scene: Scene) -> Found | None:
    """A native frame says which function keeps it."""
    holder = _holder(scene)
    frame = called_from_python(holder.frames) if holder is not None else None
    if frame is None:
        return None
    return Found(f"native frame {in_words(frame)}", {"call": in_words(frame)})


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
            return Found(words, {"waiter": _begins(who), "module": module or "a module"})
    return None


def _who_imports_waits(scene: Scene) -> Found | None:
    """The thread that imports it waits too, for that thread or something else."""
    view = scene.view
    for thread in view.threads if view is not None else ():
        module = _importing(thread.frames)
        if module and not _waits_for_a_module(thread.frames):
            frame = inner(thread.frames)
            own = view is not None and thread is view.main
            who = "its main thread" if own else f"its thread {thread.name or thread.os_id}"
            where = worded(frame) if frame is not None else "native code"
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
    return Found(f"the import waits for a thread of its own in {worded(waits)}")


def _stands_in_an_import(scene: Scene) -> Found | None:
    """A rank stands still in the code of a module that it is importing."""
    view = scene.view
    if view is None or view.running or _waits_for_a_module(scene.frames):
        return None
    # Modules of the job's own that train while they are imported are not meant.
    python = [f for f in scene.python if owner(f, scene.job.package) != "import"]
    module = next((f for f in scene.python if f.name == "<module>"), None)
    if module is None or owner(module, scene.job.package) != "library" or not python:
        return None
    name = module_of(module)
    words = f"it stands in {worded(python[0])}, while {name} is imported"
    return Found(words, {"module": name, "place": worded(python[0])})


# ---- signs: the loader ---------------------------------------------------------------------------


def _in_the_loader(scene: Scene) -> Found | None:
    """A rank waits in the loader of shared libraries (dlopen)."""
    view = scene.view
    if view is None or view.running or view.state == "D":
        return None
    frame = native_frame(scene.frames, _LOADER)
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
        frame = native_frame(thread.frames, _LOADER)
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
            need(_has_the_gil, 0.7),
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
