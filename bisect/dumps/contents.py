"""What one file of dumps holds, whatever wrote it; and what its frames tell: the system call that
they end in, and where their files lie.

The functions of the C library are named after the calls they make (man 2 futex, epoll_wait ...);
of Python's standard library those are listed that can block in one way only.

py-spy's text names a file from its topmost package on ("torch/nn/modules/module.py"), and one of
no package by its own name ("threading.py", "train.py"): whether it is a library's must be
guessed from the first part, which is either a module of the standard library or a library's that
we know.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from functools import lru_cache

from ..base.lazy_dataclass import dataclass
from ..base.process_facts import Frame, Rung, Thread
from ..base.rank_facts import CollectiveLog
from ..diagnosis.process.frames import innermost_python_frame, unqualified_name
from ..evidence.gpus.nccl_lines import NcclLine
from ..evidence.gpus.watchdog_messages import WatchdogMessages

# The outermost function of a main thread. Where the main thread of a process comes last, what
# follows it is another process.
OUTERMOST_FUNCTIONS = ("<module>", "_run_module_as_main")


@dataclass(frozen=True)
class FileLine:
    """A line of a file. `task` is the rank that a launcher's prefix names, None without."""

    number: int  # from 1
    text: str
    task: int | None = None


@dataclass(frozen=True)
class DumpedProcess:
    """One process, as one dump shows it."""

    tool: Rung
    threads: tuple[Thread, ...]  # the main one first
    file: str
    line: int  # where it begins
    pid: int | None = None
    parent: int | None = None
    command: str = ""
    host: str = ""
    rank: int | None = None  # as the text says; what the file is called comes later
    call: str = ""  # the system call that the main thread is in, as far as the stack tells
    thread: str = ""  # the main one's address: it tells processes apart where no pid is known
    fatal: str = ""  # what ended it: "Segmentation fault"


@dataclass(frozen=True)
class RecordedLog:
    """The collectives of one rank, as torch's flight recorder dumped them."""

    log: CollectiveLog
    file: str
    members: tuple[int, ...] = ()  # the ranks of the default group
    rank: int | None = None


@dataclass(frozen=True)
class RankMessages:
    """What NCCL's watchdog printed on one rank, in one log."""

    messages: WatchdogMessages
    file: str


@dataclass(frozen=True)
class Unreadable:
    """A file, or a part of one, that is none of the formats."""

    file: str
    line: int | None
    fact: str  # what is wrong with it, and what was expected


@dataclass(frozen=True)
class Contents:
    """All that was found in some files."""

    processes: tuple[DumpedProcess, ...] = ()
    recorded: tuple[RecordedLog, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()
    messages: tuple[RankMessages, ...] = ()
    nccl_lines: tuple[tuple[NcclLine, str], ...] = ()  # each with its file

    def __add__(self, other: Contents) -> Contents:
        return Contents(
            self.processes + other.processes,
            self.recorded + other.recorded,
            self.unreadable + other.unreadable,
            self.messages + other.messages,
            self.nccl_lines + other.nccl_lines,
        )


_MOST_NATIVE_FRAMES = 8  # native frames that are asked, from the innermost on
_NATIVE_CALLS = tuple(
    (re.compile(rf"(?:__(?:libc_|GI_)?)?(?:{names})(?:64)?(?:_nocancel)?$"), call)
    for names, call in (
        (r"(?:clock_)?nanosleep|usleep|sleep", "clock_nanosleep"),
        (r"pause", "pause"),
        (
            r"futex\w*|lll_lock_wait\w*|pthread_cond_\w*wait\w*|pthread_join|new_sem_wait\w*",
            "futex",
        ),
        (r"sem_(?:timed|clock)?wait\w*|pthread_mutex_\w*lock\w*", "futex"),
        (r"pthread_clockjoin\w*|_pthread_\w*join\w*", "futex"),
        (r"epoll_p?wait2?", "epoll_wait"),
        (r"p?poll", "poll"),
        (r"p?select6?", "select"),
        (r"recv(?:from)?", "recvfrom"),
        (r"recvmm?sg", "recvmsg"),
        (r"send(?:to)?", "sendto"),
        (r"connect", "connect"),
        (r"accept4?", "accept"),
        (r"p?read", "read"),
        (r"p?write", "write"),
        (r"open(?:at)?", "openat"),
        (r"wait(?:4|pid)", "wait4"),
        (r"waitid", "waitid"),
        (r"flock", "flock"),
        (r"fsync", "fsync"),
    )
)
_PYTHON_CALLS = (
    ("threading.py", "wait acquire join _wait_for_tstate_lock __enter__", "futex"),
    ("multiprocessing/synchronize.py", "__enter__ acquire wait", "futex"),
    ("selectors.py", "select", "poll"),
    ("socket.py", "accept", "accept"),
    ("socket.py", "readinto", "recvfrom"),
    ("socket.py", "create_connection", "connect"),
    ("ssl.py", "read", "read"),
    ("subprocess.py", "_try_wait", "wait4"),
    ("multiprocessing/popen_fork.py", "poll", "wait4"),
    ("multiprocessing/connection.py", "_recv", "read"),
    ("multiprocessing/connection.py", "_send", "write"),
)
_SLEEP_LINE = re.compile(r"\btime\.sleep\(")
_SLEEP_FUNCTIONS = frozenset(["time_sleep", "pysleep"])  # Modules/timemodule.c


def find_syscall(frames: Sequence[Frame], source: str = "") -> str:
    """Return the name of the system call that `frames` (innermost first) end in, "" if they do not
    tell. `source` is the line of the innermost Python frame, where the dump has it.
    """
    for frame in frames[:_MOST_NATIVE_FRAMES]:
        if not frame.native:
            break
        name = unqualified_name(frame.name.partition("@")[0])
        found = next((call for names, call in _NATIVE_CALLS if names.match(name)), "")
        if found:
            return found
    inner = innermost_python_frame(frames)
    if inner is None:
        return ""
    if _SLEEP_LINE.search(source):
        return "clock_nanosleep"
    name = unqualified_name(inner.name)
    return next(
        (
            call
            for file, functions, call in _PYTHON_CALLS
            if inner.file.endswith(f"/{file}") and name in functions.split()
        ),
        "",
    )


def drop_sleep_frames(frames: Sequence[Frame]) -> tuple[Frame, ...]:
    """Return `frames` without the native ones of a time.sleep: they are Python's own, and no native
    function of anybody's that hangs.
    """
    native = next((at for at, frame in enumerate(frames) if not frame.native), len(frames))
    sleeps = any(frame.name in _SLEEP_FUNCTIONS for frame in frames[:native])
    return tuple(frames[native:] if sleeps else frames)


# Any folders would do: they say whose a file is, and are never shown.
_STANDARD_FOLDER, _LIBRARIES_FOLDER = "/lib/python3/", "/lib/python3/site-packages/"


def _word_set(text: str) -> frozenset[str]:
    return frozenset(text.split())


_LIBRARIES = _word_set("""
    torch torchvision torchaudio torchdata torchmetrics functorch triton torchtitan torchtune
    lightning pytorch_lightning lightning_fabric lightning_utilities transformers accelerate
    deepspeed datasets evaluate peft trl tokenizers safetensors huggingface_hub hf_transfer hf_xet
    diffusers sentence_transformers bitsandbytes flash_attn xformers apex megatron vllm sglang ray
    horovod mpi4py wandb mlflow tensorboard tensorboardX comet_ml neptune clearml aim git gitdb
    filelock portalocker fasteners fsspec s3fs gcsfs aiohttp aiobotocore botocore boto3 requests
    urllib3 httpx httpcore h11 anyio sniffio certifi charset_normalizer idna grpc google pyarrow
    numpy pandas scipy sklearn sympy networkx numba llvmlite joblib PIL cv2 matplotlib tqdm rich
    click typer fire hydra omegaconf absl jsonargparse pydantic yaml psutil sentry_sdk zmq tornado
    IPython ipykernel dill multiprocess cloudpickle einops timm jax flax tensorflow keras onnx
    onnxruntime setuptools pkg_resources six attr xxhash regex packaging dateutil webdataset
""")
# Names that are a library's alone, for stacks in which no folder is left (our own files).
_WITHOUT_FOLDERS = {
    file.rpartition("/")[2]: file
    for file in (
        "torch/distributed/distributed_c10d.py",
        "torch/distributed/c10d_logger.py",
        "torch/utils/cpp_extension.py",
        "torch/utils/file_baton.py",
        "wandb/sdk/wandb_init.py",
        "wandb/sdk/wandb_login.py",
        "wandb/sdk/wandb_run.py",
        "huggingface_hub/file_download.py",
        "huggingface_hub/hf_api.py",
    )
}
_NATIVE_FILE = re.compile(
    r"\.(?:so(?:\.[\w.]*)?|c|cc|cpp|cxx|h|hh|hpp|inl|S|s|cu|cuh|rs|go|pyx|pxd)$"
)


@lru_cache(maxsize=1 << 14)
def complete_path(file: str) -> str:
    """Return the path of a shortened file so that it can be told whose it is."""
    if file.startswith(("/", "<")) or not file:
        return file
    first = file.partition("/")[0].removesuffix(".py")
    if "/" not in file and not file.endswith(".py"):
        return file  # a console script: "torchrun"
    if first in sys.stdlib_module_names:
        return _STANDARD_FOLDER + file
    file = _WITHOUT_FOLDERS.get(file, file)
    return (
        _LIBRARIES_FOLDER + file if file.partition("/")[0] in _LIBRARIES and "/" in file else file
    )


def is_native_file(file: str, has_line: bool) -> bool:
    """Return whether a frame in `file` is of C, C++ or the like: it has no line without debug
    information, and the source of another language with it.
    """
    if file.startswith("<"):
        return False
    return not has_line or bool(_NATIVE_FILE.search(file))
