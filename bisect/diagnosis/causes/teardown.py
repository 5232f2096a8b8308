"""The end of a job that does not come: threads, children and services that are still waited for."""

from __future__ import annotations

from ...base.process_facts import Thread
from ..process.frames import format_frame, frame_owner, innermost_python_frame
from .known_cause import Found, KnownCause, Scene, also, find_frame, need, unless
from .signs import format_process, frame_in

_THREADING = r"/threading\.py|<frozen threading>"
_INDUCTOR = r"torch/_inductor/(?:async_compile|compile_worker/subproc_pool)\.py"
_WANDB_ENDS = r"wandb/sdk/(?:wandb_run|wandb_setup|lib/service/\w+|backend/\w+|lib/exit_hooks)\.py"


def _find_own_threads(scene: Scene) -> tuple[Thread, ...]:
    """Return the Python threads besides the main one, without those of the harness."""
    view = scene.view
    return tuple(
        thread
        for thread in (view.threads if view is not None else ())
        if view is not None
        and thread is not view.main
        and not any(frame_owner(f, scene.job.package) == "harness" for f in thread.frames)
    )


def _in_shutdown(scene: Scene) -> Found | None:
    """Python ends, and waits for a thread that is no daemon (threading._shutdown)."""
    frame = scene.frame(_THREADING, "_shutdown")
    return None if frame is None else Found(f"it waits in {format_frame(frame)}")


def _a_thread_is_left(scene: Scene) -> Found | None:
    """Such a thread is there, and stands still."""
    threads = _find_own_threads(scene)
    own = [t for t in threads if any(frame_owner(f, scene.job.package) == "user" for f in t.frames)]
    thread = next(iter(own or threads), None)
    if thread is None:
        return None
    frame = next(
        (f for f in thread.frames if frame_owner(f, "") == "user"), None
    ) or innermost_python_frame(thread.frames)
    where = format_frame(frame) if frame is not None else "native code"
    name = f"thread {thread.name or thread.os_id}"
    values = {"thread": name, "place": where}
    return Found(f"{name} is in {where}", values)


def _pool_of_threads(scene: Scene) -> Found | None:
    """It waits for the threads of a ThreadPoolExecutor."""
    frame = scene.frame(r"concurrent/futures/thread\.py", "_python_exit|shutdown")
    return None if frame is None else Found(f"frame {format_frame(frame)}")


def _joins_children(scene: Scene) -> Found | None:
    """Python ends, and waits for processes that it started (multiprocessing)."""
    frame = scene.frame(
        r"multiproc?ess(?:ing)?/util\.py", "_exit_function|_run_finalizers"
    ) or scene.frame(r"multiproc?ess(?:ing)?/resource_tracker\.py", "_stop_locked")
    return None if frame is None else Found(f"it waits in {format_frame(frame)}")


def _a_child_is_left(scene: Scene) -> Found | None:
    """Such a process is there."""
    wait = scene.verdict.waits_for
    asked = wait.pid if wait is not None and wait.kind == "process" else None
    child = next((c for c in scene.children if c.pid == asked), None) or next(
        iter(scene.children), None
    )
    if child is None:
        return None
    main = child.main
    frame = innermost_python_frame(main.frames) if main is not None else None
    where = f" is in {format_frame(frame)}" if frame is not None else " lives"
    return Found(f"{format_process(child)}{where}", {"child": format_process(child)})


_ends_compile_workers = frame_in(
    _INDUCTOR, r"shutdown\w*|_shutdown\w*", "Python ends, and waits for inductor's compile workers"
)


def _ends_wandb(scene: Scene) -> Found | None:
    """A rank waits for W&B at the end (wandb.finish, its exit hook)."""
    frame = scene.frame(
        _WANDB_ENDS, r"finish|_finish|_atexit_cleanup|_on_finish|teardown|join|exit"
    )
    if frame is None:
        return None
    return Found(f"it waits in {format_frame(frame)}", {"place": format_frame(frame)})


def _at_the_end(scene: Scene) -> Found | None:
    """Python is ending: the script has nothing left to do."""
    view = scene.view
    if view is None or not view.frames:
        return None
    python = [f for f in view.frames if not f.native]
    if not python or any(f.name == "<module>" for f in python):
        return None
    hooks = find_frame(
        (python[-1],), r"/(?:threading|weakref|logging/__init__|multiprocessing/util)\.py"
    )
    by_hook = frame_owner(python[-1], scene.job.package) == "library" and python[-1] is not None
    return Found("the script itself is on the stack no more") if hooks or by_hook else None


_destroys_groups = frame_in(
    r"torch/distributed/distributed_c10d\.py",
    "destroy_process_group|_shutdown_backend|_abort_process_group",
    "A rank waits in destroy_process_group",
)


def _others_are_elsewhere(scene: Scene) -> Found | None:
    """Other ranks are not there, or gone."""
    inside = scene.ranks_in(r"torch/distributed/distributed_c10d\.py", "destroy_process_group")
    others = [r.rank for r in scene.ranks if r.rank not in inside and not r.finished]
    return Found(f"rank {others[0]} is not there") if others and inside else None


# ---- causes --------------------------------------------------------------------------------------

CAUSES = (
    KnownCause(
        id="thread-at-exit",
        title="the job is done, and Python waits for a thread that does not end",
        signs=(
            need(_in_shutdown, 0.7),
            also(_a_thread_is_left, 0.5),
            also(_pool_of_threads, 0.2),
        ),
        why="At its end Python waits for all threads that are not daemons; {thread} goes on, in "
        "{place}.",
        avoid=(
            "threading.Thread(..., daemon=True), if it may be cut off",
            "tell it to end (an Event, a None in its queue) and join it before the script ends",
        ),
        references=("ultralytics/yolov5#5160", "facebookresearch/fairseq#4619"),
    ),
    KnownCause(
        id="child-at-exit",
        title="the job is done, and Python waits for a process that it started",
        signs=(
            need(_joins_children, 0.7),
            need(_a_child_is_left, 0.4),
            unless(_ends_compile_workers),
        ),
        why="At its end Python waits for the processes of multiprocessing that are not daemons. "
        "{child} has not ended.",
        avoid=(
            "multiprocessing.Process(..., daemon=True), if it may be cut off",
            "tell it to end, and join it with a time limit, before the script ends",
        ),
        references=(
            "https://docs.python.org/3/library/multiprocessing.html#programming-guidelines",
        ),
    ),
    KnownCause(
        id="compile-workers-at-exit",
        title="the job is done, and torch waits for its compile workers, 300 s at most",
        signs=(need(_ends_compile_workers, 0.8), also(_at_the_end, 0.4)),
        why="At the end inductor asks its pool of compilers to end, and waits up to 300 s for it "
        "(torch/_inductor/compile_worker/subproc_pool.py).",
        avoid=(
            "wait: it ends by itself",
            "torch._inductor.async_compile.shutdown_compile_workers() once all is compiled",
            "TORCHINDUCTOR_COMPILE_THREADS=1: no pool; compiling takes longer",
        ),
        references=("pytorch/pytorch#162199",),
    ),
    KnownCause(
        id="wandb-at-exit",
        title="the job is done, and W&B has not finished sending",
        signs=(need(_ends_wandb, 0.65), also(_at_the_end, 0.4)),
        why="wandb.finish (called at exit if nobody did) waits in {place} until its service has "
        "sent all there is, or for a service that is gone.",
        avoid=(
            "wandb.finish() in the script, on the rank that called wandb.init",
            "WANDB_MODE=offline, then `wandb sync`: no live charts",
        ),
        toggles=(("wandb", "offline"),),
        references=("wandb/wandb#1927", "facebookresearch/fairseq#4619"),
    ),
    KnownCause(
        id="group-at-exit",
        title="a rank takes the process group down while others still use it",
        signs=(need(_destroys_groups, 0.5), also(_others_are_elsewhere, 0.35)),
        why="destroy_process_group ends NCCL's communicators, which needs the work that was begun "
        "to end; other ranks are not that far.",
        avoid=(
            "a barrier before destroy_process_group, on every rank",
            "call it on all ranks, at the same place of the script",
        ),
        references=("Lightning-AI/pytorch-lightning#20806",),
    ),
)
