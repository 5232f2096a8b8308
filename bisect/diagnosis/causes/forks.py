"""Forks of processes that have threads: the copy has their locks, and not the threads."""

from __future__ import annotations

from ...base.process_facts import Frame
from ..process.frames import format_frame, innermost_python_frame, is_service_thread
from ..process.process_snapshot import ProcessSnapshot
from .known_cause import Found, KnownCause, Scene, also, find_frame, need, unless
from .signs import (
    find_forked_processes,
    find_native_frame,
    format_place,
    format_process,
    has_one_working_thread,
    native_name,
    parent_waits_for_workers,
    sleeps_for_ever,
)
from .workers import a_worker_meets_others

# Rust's symbols are mangled, with the name inside (_RNvMs3_..._10rayon_core5latch...).
_RAYON = r"rayon_core|LockLatch|rayon::"
_TOKENIZERS = r"/tokenizers/tokenizers[^/]*\.so"
_TOKENIZES = r"transformers/tokenization_\w+\.py|tokenizers/\S+\.py"
_OPENMP = r"^(?:GOMP_|gomp_|omp_|__kmp|__kmpc_|kmp_)"
_OPENMP_LIBRARY = r"/lib(?:gomp|iomp5|omp)[^/]*\.so"
_OPENCV = r"^cv::"
_OPENCV_LIBRARY = r"/(?:cv2|opencv)[^/]*/[^/]*\.so|/libopencv_\w+"
_WAITS = r"sched_yield|futex|do_wait|do_spin|syscall|barrier|cond_wait|^0x"
_WAIT_PRIVATE, _STEP = 128, 8  # FUTEX_WAIT | FUTEX_PRIVATE_FLAG; BAR_INCR of libgomp
# Waits for another thread of the same process, the telling ones first. No join() of a thread: after
# a fork Python takes the parent's threads for ended (threading._after_fork), and returns at once.
_ASKS_A_THREAD = (
    (r"fsspec/asyn\.py", "sync"),
    (r"concurrent/futures/_base\.py", "result"),
    (r"/queue\.py", "get|put|join"),
    (r"/threading\.py", "wait|wait_for"),
)
_OF_PROCESSES = r"/multiproc?ess(?:ing)?/synchronize\.py"
_LOOP = (r"asyncio/base_events\.py", r"_run_once|run_forever")


def _first(scene: Scene, *, alone: bool = False) -> ProcessSnapshot | None:
    """Return the forked process that stands still, the one that can never go on before others."""
    still = [v for v in find_forked_processes(scene) if v.call_name == "futex" or v.running]
    sure = [v for v in still if _can_never_go_on(v)]
    return next(iter(sure if alone else [*sure, *still]), None)


def _can_never_go_on(view: ProcessSnapshot) -> bool:
    futex = view.call.futex if view.call is not None else None
    if futex is not None and futex.owner_exists is False:
        return True
    return has_one_working_thread(view) and sleeps_for_ever(view) and not _joins_a_thread(view)


def _joins_a_thread(view: ProcessSnapshot) -> bool:
    """Return whether a process waits for the end of a thread: that one is its own, and lives."""
    python = tuple(frame for frame in view.frames if not frame.native)[:3]
    return find_frame(python, r"/threading\.py", "join|_wait_for_tstate_lock") is not None


def _one_at_work(view: ProcessSnapshot) -> bool:
    """Return True if the main thread is the only one of Python that may do anything."""
    others = [t for t in view.threads if t is not view.main and not is_service_thread(t)]
    return bool(view.threads) and not others


def _native(scene: Scene, function: str, library: str = "") -> tuple[ProcessSnapshot, Frame] | None:
    for view in find_forked_processes(scene):
        frame = find_native_frame(view.frames, function, library)
        if frame is not None:
            return view, frame
    return None


# ---- signs ---------------------------------------------------------------------------------------


def _nobody_can_wake_it(scene: Scene) -> Found | None:
    """The forked process has no thread that could free the lock that it waits for."""
    view = _first(scene, alone=True)
    if view is None:
        return None
    process = format_process(view.look)
    words = f"{process} waits for a lock of its own, and has no thread that could free it"
    return Found(words, {"worker": format_process(view.look), "place": format_place(view)})


def _owner_is_not_there(scene: Scene) -> Found | None:
    """The lock belongs to a thread that does not exist in the forked process."""
    for view in find_forked_processes(scene):
        futex = view.call.futex if view.call is not None else None
        if futex is not None and futex.owner_exists is False:
            process = format_process(view.look)
            words = f"thread {futex.owner} has the lock, and {process} has no such thread"
            return Found(words)
    return None


def _forked_and_asleep(scene: Scene) -> Found | None:
    """A process that was forked waits for a lock (futex)."""
    view = _first(scene)
    if view is None or view.running:
        return None
    words = f"{format_process(view.look)} was forked, and waits for a lock in {format_place(view)}"
    return Found(words, {"worker": format_process(view.look), "place": format_place(view)})


def _tokenizes(scene: Scene) -> Found | None:
    """A forked process is in a fast tokenizer."""
    for view in find_forked_processes(scene):
        native = find_native_frame(view.frames, r"^$", _TOKENIZERS)
        python = innermost_python_frame(view.frames)
        in_python = python is not None and find_frame((python,), _TOKENIZES) is not None
        if native is not None or (in_python and view.call_name == "futex"):
            process = format_process(view.look)
            words = f"{process} was forked, and is in a tokenizer: {format_place(view)}"
            return Found(words, {"worker": format_process(view.look), "place": format_place(view)})
    return None


def _waits_for_rayon(scene: Scene) -> Found | None:
    """It waits for Rust's pool of threads (rayon's LockLatch)."""
    found = _native(scene, _RAYON)
    if found is None:
        return None
    view, frame = found
    library = frame.file.rpartition("/")[2] or "a library"
    words = f"{format_process(view.look)} waits for the threads of rayon, in {library}"
    values = {"worker": format_process(view.look), "place": format_place(view), "library": library}
    return Found(words, values)


def _parallelism_is_on(scene: Scene) -> Found | None:
    """TOKENIZERS_PARALLELISM is true: that turns off the library's own guard."""
    value = scene.environment.get("TOKENIZERS_PARALLELISM", "")
    if value.lower() not in ("1", "true", "yes", "on", "y", "t"):
        return None
    return Found(f"TOKENIZERS_PARALLELISM={value}")


def _parallelism_is_off(scene: Scene) -> Found | None:
    """TOKENIZERS_PARALLELISM is false."""
    value = scene.environment.get("TOKENIZERS_PARALLELISM", "")
    return Found("it is off") if value.lower() in ("0", "false", "no", "off", "n", "f") else None


def _at_a_barrier_of_libgomp(view: ProcessSnapshot) -> bool:
    """Return True for the futex of a barrier of libgomp: FUTEX_WAIT, private, without a time limit,
    for a generation, which counts in steps of 8 (libgomp/config/linux/bar.h, BAR_INCR).
    """
    args = view.call.args if view.call is not None else ()
    if view.call_name != "futex" or len(args) < 4 or view.running:
        return False
    return args[1] == _WAIT_PRIVATE and args[2] > 0 and args[2] % _STEP == 0 and args[3] == 0


def _team(scene: Scene) -> tuple[ProcessSnapshot, str] | None:
    """Return the forked process that waits for threads of OpenMP, and where."""
    found = _native(scene, _OPENMP, _OPENMP_LIBRARY)
    if found is not None:
        view, _ = found
        waits = view.frames[0].native and find_native_frame(view.frames[:1], _WAITS) is not None
        if waits or view.call_name == "futex":
            return view, native_name(view.frames[0])
    view_at = next((v for v in find_forked_processes(scene) if _at_a_barrier_of_libgomp(v)), None)
    return None if view_at is None else (view_at, "a futex of libgomp's barriers")


def _waits_for_its_team(scene: Scene) -> Found | None:
    """A forked process waits for the other threads of its OpenMP team, asleep or spinning."""
    found = _team(scene)
    if found is None:
        return None
    view, where = found
    words = f"{format_process(view.look)} was forked, and waits for its team in {where}"
    return Found(words, {"worker": format_process(view.look), "place": format_place(view)})


def _in_openmp(scene: Scene) -> Found | None:
    """A native frame shows the parallel region of OpenMP (libgomp, libiomp5)."""
    found = _native(scene, _OPENMP, _OPENMP_LIBRARY)
    if found is None:
        return None
    view, frame = found
    return Found(f"{format_process(view.look)} is in {native_name(frame)}")


def _parent_has_a_pool(scene: Scene) -> Found | None:
    """Its parent has threads that are not Python's: it used such a pool before."""
    view = scene.view
    if view is None or not view.threads:
        return None
    python = {thread.os_id for thread in view.threads}
    others = [k for k in view.look.kernel if k.tid not in python]
    if not others:
        return None
    count = len(others)
    return Found(f"its parent has {count} native thread{'s' if count > 1 else ''}")


def _in_opencv(scene: Scene) -> Found | None:
    """A forked process is in OpenCV."""
    found = _native(scene, _OPENCV, _OPENCV_LIBRARY)
    if found is None:
        return None
    view, frame = found
    words = f"{format_process(view.look)} was forked, and is in {native_name(frame)} of OpenCV"
    return Found(words, {"worker": format_process(view.look), "place": format_place(view)})


def _waits_for_a_thread(scene: Scene) -> Found | None:
    """A forked process waits for what a thread is to give (fsspec, Future.result, Queue.get)."""
    for view in find_forked_processes(scene):
        python = tuple(frame for frame in view.frames if not frame.native)[:4]
        if find_frame(python, _OF_PROCESSES) is not None:
            continue  # another process gives it: its Barrier and Event are on those of threads
        asked = (find_frame(python, file, function) for file, function in _ASKS_A_THREAD)
        frame = next((frame for frame in asked if frame is not None), None)
        if frame is not None and _one_at_work(view):
            words = f"{format_process(view.look)} was forked, and waits in {format_frame(frame)}"
            return Found(words, {"worker": format_process(view.look), "place": format_frame(frame)})
    return None


def _has_no_such_thread(scene: Scene) -> Found | None:
    """It has no other thread of Python that could give it."""
    for view in find_forked_processes(scene):
        if _one_at_work(view):
            return Found(f"{format_process(view.look)} has no other thread of Python at work")
    return None


def _parent_has_the_loop(scene: Scene) -> Found | None:
    """Its parent runs an event loop in a thread."""
    for thread in scene.view.threads if scene.view else ():
        if thread.os_id != (scene.subject.pid if scene.subject else None) and find_frame(
            thread.frames, *_LOOP
        ):
            return Found(f"its parent runs an event loop in thread {thread.name or thread.os_id}")
    return None


# ---- causes --------------------------------------------------------------------------------------

_IN_THE_RANK = "num_workers=0: batches are made by the rank itself, more slowly"
_FORKSERVER = (
    "workers by forkserver, which copies no threads (needs a main guard: the script's start below "
    '`if __name__ == "__main__":`): seconds more at the start'
)
_TOGGLES = (("num_workers", "0"), ("worker_start", "forkserver"))

CAUSES = (
    KnownCause(
        id="tokenizers-after-fork",
        title="a fast tokenizer was used before the fork, and again in the forked worker",
        signs=(
            need(_tokenizes, 0.5),
            also(_waits_for_rayon, 0.6),
            also(_nobody_can_wake_it, 0.55),
            also(_parallelism_is_on, 0.5),
            also(parent_waits_for_workers, 0.2),
            unless(_parallelism_is_off),
        ),
        why="The tokenizer's threads were started before the fork and stayed in the parent. "
        "{worker} gave them work in {place} and waits for them for ever.",
        avoid=(
            "TOKENIZERS_PARALLELISM=false, or leave it unset: tokenizing then uses one core",
            "tokenize for the first time in the workers, or everything before training",
            _IN_THE_RANK,
        ),
        toggles=(("tokenizers_parallelism", "off"), ("num_workers", "0")),
        references=(
            "huggingface/tokenizers#187",
            "huggingface/tokenizers#258",
            "NVIDIA-NeMo/Megatron-Bridge#5328",
        ),
    ),
    KnownCause(
        id="rust-pool-after-fork",
        title="a forked process uses a pool of Rust threads (rayon) that stayed in its parent",
        signs=(
            need(_waits_for_rayon, 0.7),
            also(_nobody_can_wake_it, 0.5),
            also(parent_waits_for_workers, 0.2),
            unless(_tokenizes),
        ),
        why="The threads of {library} were started before the fork and stayed in the parent. "
        "{worker} waits for them in {place}.",
        avoid=(_FORKSERVER, "use that library in the workers only, or before them only"),
        toggles=_TOGGLES,
        references=("huggingface/tokenizers#187",),
    ),
    KnownCause(
        id="openmp-after-fork",
        title="OpenMP was used before the fork, and again in the forked worker",
        signs=(
            need(_waits_for_its_team, 0.6),
            also(_in_openmp, 0.5),
            also(parent_waits_for_workers, 0.3),
            also(_parent_has_a_pool, 0.25),
            also(_nobody_can_wake_it, 0.5),
        ),
        why="libgomp's threads stayed in the parent when {worker} was forked. In {place} it counts "
        "on them, and waits for ever.",
        avoid=(
            "torch.set_num_threads(1) in the workers, and OMP_NUM_THREADS=1: one core a worker",
            _FORKSERVER,
            _IN_THE_RANK,
        ),
        toggles=_TOGGLES,
        references=(
            "pytorch/pytorch#75147",
            "facebookresearch/faiss#5206",
            "OpenMathLib/OpenBLAS#240",
            "pytorch/pytorch#45198",
        ),
    ),
    KnownCause(
        id="opencv-after-fork",
        title="OpenCV's threads stayed in the parent of a forked worker",
        signs=(
            need(_in_opencv, 0.6),
            also(_nobody_can_wake_it, 0.6),
            also(parent_waits_for_workers, 0.3),
        ),
        why="OpenCV started its threads before the fork. {worker} has none of them, and waits for "
        "them in {place}.",
        avoid=(
            "cv2.setNumThreads(0) right after `import cv2`: one core for each worker",
            _IN_THE_RANK,
        ),
        toggles=_TOGGLES,
        references=(
            "pytorch/pytorch#1355",
            "pytorch/pytorch#1838",
            "albumentations-team/albumentations#1825",
        ),
    ),
    KnownCause(
        id="thread-lost-by-fork",
        title="a forked worker waits for a thread that only its parent has",
        signs=(
            need(_waits_for_a_thread, 0.6),
            need(_has_no_such_thread, 0.5),
            also(_parent_has_the_loop, 0.5),
            also(parent_waits_for_workers, 0.2),
        ),
        why="{worker} waits in {place} for what a thread is to give: an event loop (fsspec, s3fs, "
        "gcsfs) or a pool that was started before the fork. Threads are not copied.",
        avoid=(
            "open the file system in the worker (Dataset.__iter__, worker_init_fn), not before",
            _FORKSERVER,
            _IN_THE_RANK,
        ),
        toggles=_TOGGLES,
        references=("fsspec/filesystem_spec#835", "fsspec/s3fs#914", "fsspec/gcsfs#379"),
    ),
    KnownCause(
        id="lock-after-fork",
        title="a forked process waits for a lock, or a thread, that stayed behind in its parent",
        signs=(
            need(_forked_and_asleep, 0.45),
            need(_nobody_can_wake_it, 0.6),
            also(_owner_is_not_there, 0.5, proves=True),
            also(parent_waits_for_workers, 0.2),
            unless(_waits_for_a_thread),
            unless(_waits_for_rayon),
            unless(_tokenizes),
            unless(_waits_for_its_team),
            unless(_in_opencv),
            unless(a_worker_meets_others),
        ),
        why="When {worker} was forked a thread of the parent had the lock that it waits for in "
        "{place}, or was to do its work (arrow, OpenBLAS, gRPC). The copy has no such thread.",
        avoid=(
            _FORKSERVER,
            "start threads (loggers, caches, clients) after the workers, not before",
            _IN_THE_RANK,
            "subprocess: no preexec_fn; cwd, env, umask, user and start_new_session do without",
        ),
        toggles=_TOGGLES,
        references=(
            "pytorch/pytorch#75147",
            "fsspec/filesystem_spec#835",
            "DataDog/dd-trace-py#18900",
        ),
    ),
)
