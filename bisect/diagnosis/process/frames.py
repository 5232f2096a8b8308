"""Whose code a stack frame is: the harness's, the job's, or a library's; and which threads only
serve a library.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import lru_cache, wraps
from itertools import zip_longest
from typing import Concatenate, Literal, ParamSpec, TypeVar

from ...base.library_functions import Role, has_role, is_library_file
from ...base.process_facts import Frame, Thread

FrameOwner = Literal["harness", "step", "user", "library", "import", "native"]

_BELOW_LIBRARY = re.compile(
    r"^.*/(?:(?:site|dist)-packages|(?:lib|lib64)/python\d+(?:\.\d+)?(?:/lib-dynload)?)/"
)
_IMPORTLIB = re.compile(r"<frozen importlib|/importlib/(?:__init__|_bootstrap\w*)\.py$")
_INJECTIONS = "rank/injections.py"  # below our own folder
# How the file begins that wrappers in a script of the user's own say (rank/function_patching.py).
WRAPPER = "<frozen importlib._bootstrap> hangbisect"
_BETWEEN = (
    *("rank/collective_log.py", "rank/function_patching.py"),
    *("rank/watched/", "rank/patches.py", "rank/call_changes.py"),
)
_PHASES = "pipelines/fit_phases.py"
_RUNPY = re.compile(r"<frozen runpy>|/runpy\.py$")

# A handler that runs on the main thread hides what the signal interrupted. Where the name alone
# does not tell, base/library_functions.py does.
_HANDLER_NAMES = re.compile(
    r"^(?:_*(?:on|handle)_sig\w*|\w*sig(?:nal|term|int|hup|usr\d?|alrm)\w*handler\w*"
    r"|_?sigterm_notifier_fn|_terminate_process_handler)$"
)


def unqualified_name(name: str) -> str:
    """Return the function's own name of a qualified one: "Condition.wait" gives "wait"."""
    return name.rpartition(".")[2]


def is_signal_handler(frame: Frame) -> bool:
    """Return True if `frame` is where a signal handler was entered."""
    return _is_handler_function(frame.file, frame.name)


@lru_cache(maxsize=1 << 14)  # a thousand ranks have few different frames
def _is_handler_function(file: str, qualified: str) -> bool:
    if _HANDLER_NAMES.match(unqualified_name(qualified)):
        return True
    return has_role(file, qualified, Role.HANDLES_SIGNAL)


_P = ParamSpec("_P")
_T = TypeVar("_T")
_MOST_STACKS = 1 << 14  # that are kept of each function


def keep_by_stack(
    find: Callable[Concatenate[tuple[Frame, ...], _P], _T],
) -> Callable[Concatenate[tuple[Frame, ...], _P], _T]:
    """Return a function that works out once what `find` says of a stack: the ranks of a large job
    share few of them, each of which is one object for all (link/look_summary.py). Of stacks that
    are equal and not the same object each is worked out: to compare them takes as long.
    """
    known: dict[Hashable, tuple[tuple[Frame, ...], _T]] = {}

    @wraps(find)
    def found(frames: tuple[Frame, ...], /, *args: _P.args, **options: _P.kwargs) -> _T:
        key = (id(frames), *args, *options.values())
        kept = known.get(key)
        if kept is None or kept[0] is not frames:
            if len(known) >= _MOST_STACKS:
                known.clear()
            kept = known[key] = frames, find(frames, *args, **options)
        return kept[1]

    return found


@keep_by_stack
def drop_signal_handlers(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """Return `frames` (innermost first) as they were before any signal handler ran."""
    outermost = max((i for i, frame in enumerate(frames) if is_signal_handler(frame)), default=-1)
    return frames[outermost + 1 :]


def innermost_python_frame(frames: Iterable[Frame]) -> Frame | None:
    """Return the innermost Python frame."""
    return next((frame for frame in frames if not frame.native), None)


def frame_owner(frame: Frame, package: str) -> FrameOwner:
    """Return whose code `frame` is; `package` is the folder of our own code."""
    return "native" if frame.native else _find_owner(frame.file, package.rstrip("/"))


@lru_cache(maxsize=1 << 14)
def _find_owner(file: str, package: str) -> FrameOwner:
    if package and file.startswith(package + "/"):
        inside = file[len(package) + 1 :]
        if inside == _INJECTIONS:
            return "user"
        if inside == _PHASES:  # it only stands in between and tells
            return "harness"
        return "step" if inside.startswith("pipelines/") else "harness"
    if file.startswith(WRAPPER):
        return "harness"
    if _IMPORTLIB.search(file):
        return "import"
    if _RUNPY.search(file):
        return "harness"
    return "library" if is_library_file(file) else "user"


def is_injection(frame: Frame, package: str) -> bool:
    """Return True if `frame` hangs on purpose."""
    return bool(package) and frame.file == f"{package.rstrip('/')}/{_INJECTIONS}"


@keep_by_stack
def job_frames(frames: tuple[Frame, ...], package: str) -> tuple[Frame, ...]:
    """Return the Python frames of the job, innermost first: without handlers, the harness,
    whatever called the harness (a console script, runpy), and what libraries make as they run.
    """
    kept: list[Frame] = []
    python = [
        f for f in drop_signal_handlers(frames) if not (f.native or _stands_between(f, package))
    ]
    pairs = zip_longest(python, python[1:])
    python = [frame for frame, outer in pairs if not _is_generated(frame, outer, package)]
    harness = [i for i, f in enumerate(python) if frame_owner(f, package) == "harness"]
    for i, frame in enumerate(python):
        if i in harness:
            continue
        if harness and i > harness[-1]:
            break
        kept.append(frame)
    return _drop_start_of_child(kept)


# What runs in a child of multiprocessing before the job's function does, its `python -c` included.
_STARTS_CHILD = re.compile(
    r"^<string>$|(?<!torch)/multiprocessing/(?:spawn|process|forkserver|popen_\w+)\.py$"
)


_TRACKER = re.compile(r"multiproc?ess(?:ing)?/resource_tracker\.py$")
_FORK_SERVER = re.compile(r"multiproc?ess(?:ing)?/forkserver\.py$")


def serves_multiprocessing(frames: Iterable[Frame]) -> bool:
    """Return whether a stack (innermost first) is that of a resource tracker, or of a fork server
    in its loop. What this has forked has its frames below its own, and what it imports before it
    serves anybody is the job's (multiprocessing/forkserver.py, main and _serve_one).
    """
    for frame in frames:
        if _TRACKER.search(frame.file):
            return True
        if _FORK_SERVER.search(frame.file):
            return unqualified_name(frame.name) == "main"
        if _IMPORTLIB.search(frame.file):
            return False
    return False


_FORKS = re.compile(r"/multiprocessing/popen_fork\.py$")
_BOOTSTRAPS = re.compile(r"/multiprocessing/process\.py$")


def _drop_start_of_child(frames: Sequence[Frame]) -> tuple[Frame, ...]:
    """Return `frames` without those by which multiprocessing starts a child: they are no code of
    the job. Where nothing else is there, all of them: it may be what hangs.
    """
    fork = next((n for n, f in enumerate(frames) if _FORKS.search(f.file)), len(frames))
    last = len(frames)
    if any(_BOOTSTRAPS.search(frame.file) for frame in frames[:fork]):
        last = fork  # what is around it is a copy of the stack of who forked
    while last and _STARTS_CHILD.search(frames[last - 1].file):
        last -= 1
    starts = any("/multiprocessing/" in frame.file for frame in frames[last:])
    return tuple(frames[:last] if last and starts else frames)


def _is_generated(frame: Frame, outer: Frame | None, package: str) -> bool:
    """Return True for a function that the library around it has made of a text, as the methods of a
    proxy (multiprocessing.managers.MakeProxyType): of `python -c` no library is around.
    """
    if frame.file != "<string>" or outer is None:
        return False
    return frame_owner(outer, package) == "library"


def _stands_between(frame: Frame, package: str) -> bool:
    """Return True for our frames between a caller and the library that it calls."""
    if frame.file.startswith(WRAPPER):
        return True
    inside = frame.file.removeprefix(package.rstrip("/") + "/")
    return bool(package) and inside != frame.file and inside.startswith(_BETWEEN)


def dotted_name(frame: Frame) -> str:
    """Return `module.function` of a frame: below site-packages or the standard library, the
    whole module path, else the file's own name.
    """
    if frame.file.startswith("<frozen "):
        module = frame.file[len("<frozen ") :].rstrip(">")
    else:
        path = frame.file
        below = _BELOW_LIBRARY.sub("", path)
        if below == path:  # not a library: its folders say nothing
            below = path.rpartition("/")[2]
        module = re.sub(r"(?:/__init__)?\.\w+$", "", below).replace("/", ".")
    name = frame.name.replace(".<locals>", "")
    return module if name == "<module>" else f"{module}.{name}"


def module_of(frame: Frame) -> str:
    """Return the name under which the module of a `<module>` frame was probably imported."""
    path = _BELOW_LIBRARY.sub("", frame.file)
    path = re.sub(r"(?:/__init__)?\.\w+$", "", path)
    if path.startswith("/"):
        path = path.rpartition("/")[2]
    return path.replace("/", ".")


def format_frame(frame: Frame) -> str:
    """Return a frame as the verdict spells it: "Condition.wait (threading.py:327)"."""
    return f"{frame.name} ({frame.file.rpartition('/')[2]}:{frame.line})"


def format_innermost_frame(frames: Iterable[Frame]) -> str:
    """Return the innermost Python frame in words, that of what a decorator is around and not the
    decorator's; "" if there is none.
    """
    python = [frame for frame in frames if not frame.native]
    told = next((frame for frame in python if not is_decorator(frame)), *python[:1] or (None,))
    return format_frame(told) if told is not None else ""


_THREADING = ("/threading.py", "<frozen threading>")


def is_of_threading(frame: Frame) -> bool:
    """Return whether a frame is one of Python's `threading`."""
    return frame.file.endswith(_THREADING)


_DECORATOR = re.compile(r"_?inner(?:_fn)?|\w*wrapper|wrapped\w*|decorate\w*")


def is_decorator(frame: Frame) -> bool:
    """Return whether a frame is that of a decorator around a function, by its name."""
    own = unqualified_name(frame.name)
    return "<locals>" in frame.name and _DECORATOR.fullmatch(own) is not None


# Packages with threads, and processes, of their own that send what a job logs.
EXPORTERS = r"/(?:opentelemetry|wandb|tqdm|sentry_sdk|prometheus_client|ddtrace|posthog)/\S+\.py$"
# Threads that exporters, progress bars and pools keep, some also in what is forked.
_SERVES = re.compile(
    r"/(?:threading|queue|selectors|socketserver)\.py$|/concurrent/futures/thread\.py$"
    r"|/multiprocessing/(?:queues|connection|synchronize|resource_sharer)\.py$"
    r"|/torch/_inductor/\S+\.py$|<frozen threading>"
    r"|/ray/_private/(?:gc_collect_manager|worker)\.py$"
    r"|/distributed/threadpoolexecutor\.py$"  # of Dask's workers
    r"|/grpc/_channel\.py$"  # what hears of a channel's calls, and what asks for their next request
    rf"|{EXPORTERS}"
)
_EXPORTS = re.compile(EXPORTERS)
_LOOPS = re.compile(r"/asyncio/\w+\.py$")  # W&B's thread runs an event loop
_SENDS = re.compile(r"/multiprocessing/connection\.py$")


def _is_given_work(python: list[Frame]) -> bool:
    """Return True if a thread is in a task of a pool, or in a function in C that it was started
    with: neither need have a frame of its own.
    """
    task = any(
        frame.name.endswith("_WorkItem.run")
        or (frame.name == "run" and frame.file.endswith("/concurrent/futures/thread.py"))
        for frame in python
    )
    inner = python[0]
    return task or (inner.name in ("Thread.run", "run") and inner.file.endswith("/threading.py"))


def _is_sending(python: list[Frame]) -> bool:
    """Return True if a thread is in the middle of writing to a connection of multiprocessing, as
    the feeder of a queue is: what it waits for is room, and no work.
    """
    return unqualified_name(python[0].name) == "_send" and bool(_SENDS.search(python[0].file))


def runs_job_code(thread: Thread) -> bool:
    """Return whether code of the job is on the stack of a thread."""
    return any(frame_owner(one, "") == "user" for one in thread.frames if not one.native)


def is_service_thread(thread: Thread) -> bool:
    """Return True for a thread of a library that waits for work, or for time to pass: it frees
    nothing that anybody else waits for.
    """
    python = [frame for frame in thread.frames if not frame.native]
    if python and (_is_given_work(python) or _is_sending(python)):
        return False
    own = any(_EXPORTS.search(frame.file) for frame in python)
    return bool(python) and all(
        _SERVES.search(frame.file) or (own and _LOOPS.search(frame.file)) for frame in python
    )
