"""Programs that compile, and functions of libraries that compile inside of Python: the one place to
add another. Also where each of them keeps what it has made.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache

from .lazy_dataclass import dataclass
from .library_functions import Role, has_role
from .process_facts import Frame, Look, Sample
from .words import format_count

# Those that build by starting others, the outermost first.
_BUILDERS = r"ninja(?:-build)?|samu|g?make|cmake|bazel|meson"
_COMPILERS = (
    r"(?:\S+-)?(?:g\+\+|gcc|c\+\+|cc|clang(?:\+\+)?|ld(?:\.\w+)?)(?:-[\d.]+)?|cc1|cc1plus|collect2|as"
    r"|lto1|lto-wrapper|nvcc|cicc|ptxas|fatbinary|nvlink|cudafe\+\+|hipcc|amdclang(?:\+\+)?|lld"
    r"|icp?x|rustc|ccache|sccache"
)
_BUILDER = re.compile(_BUILDERS)
_COMPILER = re.compile(rf"{_BUILDERS}|{_COMPILERS}")
# Processes of Python that compile for another one: a module or a file on their command line.
_WORKERS = (("torch/_inductor/compile_worker/", "inductor's compile worker"),)
_SHELLS = frozenset(["sh", "bash", "dash", "env", "time", "nice", "perl", "sccache", "ccache"])
_COMM = 15  # characters of a process's name that the kernel keeps (proc(5))


def name_compiler(comm: str, command: Sequence[str]) -> str:
    """Return the name of the compiler that a process runs, "" if it runs none; `comm` is the
    process's own name, which the kernel cuts. A script has its interpreter before it on the command
    line.
    """
    words = [os.path.basename(word) for word in command[:2]]
    if words and words[0].startswith(("python", *_SHELLS)):
        words = words[1:]
    names = [*words[:1], comm] if len(comm) == _COMM else [comm, *words[:1]]
    return next((name for name in names if _COMPILER.fullmatch(name)), "")


def name_worker(command: Sequence[str]) -> str:
    """Return in words what a process of Python compiles for another one, "" if it is none: at work
    or not, such a process is there.
    """
    found = (name for file, name in _WORKERS if any(file in word for word in command))
    return next(found, "")


def is_builder(name: str) -> bool:
    """Return whether a compiler is one that builds by starting others."""
    return _BUILDER.fullmatch(name) is not None


@dataclass(frozen=True)
class InProcess:
    """Functions that compile inside the process of who calls them."""

    name: str
    file: str  # a regular expression for the end of the path
    function: str  # one for the whole of the unqualified name
    # Of the folder in which the results are kept: the variable that names it, what is below that,
    # and where it is otherwise.
    variable: str = ""
    below: str = ""
    default: str = ""


# Only what runs while something is compiled: what is compiled already is called through files of
# the same packages (torch/_inductor/output_code.py, triton/runtime/jit.py).
IN_PROCESS = (
    InProcess(
        "Triton",
        r"triton/(?:compiler/\w+|backends/\w+/compiler)\.py",
        r"\w+",
        *("TRITON_CACHE_DIR", "", "~/.triton/cache"),
    ),
    InProcess(
        "FlashInfer",
        r"flashinfer/jit/\S+\.py",
        r"\w+",
        *("FLASHINFER_WORKSPACE_BASE", ".cache/flashinfer", "~/.cache/flashinfer"),
    ),
    # What tries out kernels compiles most of them: FlashInfer 0.7.4 and Triton 3.x.
    InProcess(
        "FlashInfer's autotuner",
        r"flashinfer/autotuner(?:/autotuner)?\.py",
        r"choose_one|_profile_\w+|precompile_tactics",
    ),
    InProcess(
        "Triton's autotuner",
        r"triton/runtime/autotuner\.py",
        r"_bench|benchmark|check_disk_cache",
        *("TRITON_CACHE_DIR", "", "~/.triton/cache"),
    ),
    InProcess("a CUTLASS DSL", r"cutlass/(?:base_dsl|cute|cutlass_dsl)/\S*compiler\.py", r"\w+"),
    InProcess(
        "vLLM",
        r"vllm/compilation/(?:backends|compiler_interface|piecewise_backend)\.py",
        r"compile\w*|_compile\w*",
        *("VLLM_CACHE_ROOT", "torch_compile_cache", "~/.cache/vllm/torch_compile_cache"),
    ),
    InProcess(
        "torch.compile",
        r"torch/(?:_dynamo/convert_frame|_inductor/(?:graph|scheduler|async_compile"
        r"|select_algorithm|autotune_process|codegen/\S+))\.py",
        r"\w+",
        *("TORCHINDUCTOR_CACHE_DIR", "", "/tmp/torchinductor_{user}"),
    ),
    InProcess(
        "torch.compile",
        r"torch/_inductor/compile_fx\.py",
        r"_?compile_fx\w*|\w*codegen_and_compile|inner_compile",
        *("TORCHINDUCTOR_CACHE_DIR", "", "/tmp/torchinductor_{user}"),
    ),
    InProcess(
        "torch.utils.cpp_extension",
        r"torch/utils/cpp_extension\.py",
        r"_run_ninja_build|_write_ninja_file_and_build_library|_build_extension\w*",
        *("TORCH_EXTENSIONS_DIR", "", "~/.cache/torch_extensions"),
    ),
)


@cache
def _patterns() -> tuple[tuple[re.Pattern[str], re.Pattern[str], InProcess], ...]:
    return tuple(
        (re.compile(rf"(?:^|/)(?:{row.file})$"), re.compile(row.function), row)
        for row in IN_PROCESS
    )


def find_compiling_frame(frames: Iterable[Frame]) -> tuple[Frame, InProcess] | None:
    """Return the innermost of `frames` (innermost first) that compiles, with what it is; None where
    none does, or where it waits for other ranks meanwhile.
    """
    for frame in frames:
        if frame.native:
            continue
        if has_role(frame.file, frame.name, Role.RUNS_COLLECTIVE):
            return None
        own = frame.name.rpartition(".")[2]
        for file, function, row in _patterns():
            if file.search(frame.file) and function.fullmatch(own):
                return frame, row
    return None


def find_cache_folder(row: InProcess, environ: Mapping[str, str], user: str) -> str:
    """Return the folder in which a library keeps what it has compiled, "" if that is not known;
    `environ` is that of the process.
    """
    if set_to := environ.get(row.variable, ""):
        return os.path.join(set_to, row.below) if row.below else set_to
    home = environ.get("HOME", "")
    if row.default.startswith("~") and not home:
        return ""
    folder = row.default.replace("~", home, 1).replace("{user}", user)
    temporary = environ.get("TMPDIR", "/tmp")  # tempfile.gettempdir
    return temporary + folder.removeprefix("/tmp") if folder.startswith("/tmp/") else folder


# ---- what a command line says --------------------------------------------------------------------

_SOURCES = (".cu", ".cpp", ".cc", ".cxx", ".c", ".hip", ".mm", ".f90", ".rs", ".ll", ".mlir")
_MADE = (".ptx", ".cubin", ".ii", ".i", ".s", ".o", ".so", ".bc", ".fatbin")


def find_compiled_file(command: Sequence[str]) -> str:
    """Return the name of the file that a compiler was told to compile, or else of what it makes;
    "" if its command line does not tell.
    """
    words = [word for word in command[1:] if not word.startswith("-")]
    sources = [
        command[n + 1] for n, word in enumerate(command[:-1]) if word == "--orig_src_file_name"
    ]
    made = [command[n + 1] for n, word in enumerate(command[:-1]) if word == "-o"]
    for endings, among in ((_SOURCES, [*sources, *words]), (_MADE, [*made, *words])):
        for word in among:
            if word.endswith(endings):
                return os.path.basename(word)
    return ""


# ---- what two looks show -------------------------------------------------------------------------

BUSY_SHARE = 0.5  # of one core
_COMPILER_SHARE = 0.05  # the same, of a program that compiles: it does not spin


def measure_cpu_share(before: Sample | None, after: Sample | None) -> float:
    """Return which part of a core a process used between two readings, without what its threads
    that only poll used; 0.0 if that is not known.
    """
    if before is None or after is None or before.started != after.started:
        return 0.0
    # Time in the run queue counts: on a loaded machine what computes gets little of a core.
    used = after.cpu - before.cpu + after.delayed - before.delayed
    polled = dict(before.polling)
    used -= sum(cpu - polled[tid] for tid, cpu in after.polling if tid in polled)
    return max(0.0, used) / max(after.at - before.at, 1e-3)


def describe_compiling(before: Look, after: Look) -> str:
    """Return what a process that compiles has done between two looks, "" for nothing. One file may
    take a compiler ten minutes of CPU in which nothing else of it moves.
    """
    old, new = before.build, after.build
    if old is None or new is None or (old.program, old.folder) != (new.program, new.folder):
        return ""
    if new.done is not None and new.done > (old.done or 0):
        return f"has built {new.done} of {format_count(new.steps or new.done, 'file')}"
    if new.folder and (new.files or 0, new.size or 0) > (old.files or 0, old.size or 0):
        return f"compiles ({new.folder} grows)"
    in_process = bool(after.threads) or bool(name_worker(after.command))
    least = BUSY_SHARE if in_process else _COMPILER_SHARE
    if measure_cpu_share(before.sample, after.sample) < least:
        return ""
    return f"compiles {new.what}".rstrip()
