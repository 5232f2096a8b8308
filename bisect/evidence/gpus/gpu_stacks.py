"""Which kernel a rank's GPU runs: a core dump of the GPU that CUDA writes on demand, read by
cuda-gdb. Asked for by `attach --gpu-stacks` alone.

With CUDA_ENABLE_USER_TRIGGERED_COREDUMP=1 a process makes a FIFO (CUDA_COREDUMP_PIPE) and has it
open; what is written into it makes CUDA stop the GPU for the moment, and write a file
(CUDA_COREDUMP_FILE). After that it may end the process, unless CUDA_COREDUMP_GENERATION_FLAGS has
skip_abort: without that nobody is asked. The other skip_ flags make the file small: kernels and
places are in it, memory is not (NVIDIA's CUDA-GDB manual, "GPU Core Dump Support";
CUcoredumpSettings of the driver's API).
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import stat
import time
from collections.abc import Mapping
from pathlib import Path

from ...base.deadline import run_command
from ...base.rank_facts import RankFacts
from ..descriptors import read_links
from .recorder_queries import write_byte

_DEBUGGER = "cuda-gdb"
_ALLOWS = "CUDA_ENABLE_USER_TRIGGERED_COREDUMP"
_PIPE, _FILE = "CUDA_COREDUMP_PIPE", "CUDA_COREDUMP_FILE"
_FLAGS, _GOES_ON = "CUDA_COREDUMP_GENERATION_FLAGS", "skip_abort"
_DEFAULT_PIPE, _DEFAULT_FILE = "corepipe.cuda.%h.%p", "core_%t_%h_%p.nvcudmp"  # in its own folder
_PAUSE = 0.1  # seconds between two looks at the file
_DONE = 0.5  # seconds without growth: the file is whole
_CLOCK_TICK = 0.02  # the clock of a file system may be behind by that
_MOST_KERNELS = 8
_LONGEST = 160  # characters of a kernel's name
# A frame on the GPU: "#0  0x... in spin_kernel(long)<<<(1,1,1),(1,1,1)>>> ()".
_FRAME = re.compile(
    r"^#0\s+(?:0x[0-9a-f]{1,16} in )?(?P<name>\S.{0,2000}?)"
    r"<<<(?P<grid>\(\d[\d,]{0,40}\),\(\d[\d,]{0,40}\))>>>",
    re.MULTILINE,
)
# A row of "info cuda kernels", of which one is in focus: the others have no frame.
_ROW = re.compile(
    r"^[* ]\s*\d{1,9}\s+\S{1,9}\s+\d{1,9}\s+\d{1,18}\s+\w{1,20}\s+0x[0-9a-fx,]{1,200}\s+"
    r"(?P<grid>\(\d[\d,]{0,40}\))\s+(?P<block>\(\d[\d,]{0,40}\))\s+(?P<name>\S.{0,2000}?)\s*$",
    re.MULTILINE,
)
_ARGUMENTS = re.compile(r"\([^()]*\)$|<.*>\(.*\)$")


def why_no_dump(facts: RankFacts) -> str:
    """Return why a rank's GPU cannot be asked, in words, "" if it can."""
    environment = facts.environment
    if environment.get(_ALLOWS) != "1":
        return f"it was started without {_ALLOWS}=1"
    if _GOES_ON not in environment.get(_FLAGS, ""):
        return f"it was started without {_GOES_ON} in {_FLAGS}, and might end after a dump"
    return "" if _find_pipe(facts) else f"it has no pipe {_name_pattern(environment, _PIPE)} open"


def dump_gpu(facts: RankFacts, limit: float) -> Path | None:
    """Have CUDA dump what a rank's GPU runs; return the file, None if none came within `limit`
    seconds. Blocks so long, and on a bad file system.
    """
    pipe, until = _find_pipe(facts), time.monotonic() + limit
    since = time.time() - _CLOCK_TICK
    if pipe is None or not write_byte(pipe):
        return None
    sizes: dict[Path, tuple[int, float]] = {}  # with the time since which it has not grown
    while time.monotonic() < until:
        time.sleep(_PAUSE)
        for path in _list_dumps(facts, since):
            size, now = path.stat().st_size, time.monotonic()
            if sizes.get(path, (0, now))[0] != size or not size:
                sizes[path] = size, now
            elif now - sizes[path][1] >= _DONE:
                return path
    return None


def read_kernels(dump: Path, limit: float) -> tuple[str, ...] | None:
    """Return the kernels in a dump, as cuda-gdb tells them; None if it does not come to an end
    within `limit` seconds. Raises OSError without cuda-gdb.
    """
    words = ("-nx", "--batch", "-ex", f"target cudacore {dump}", "-ex", "info cuda kernels")
    ran = run_command((find_debugger(), *words), limit)
    return None if ran.status is None else parse_kernels(ran.out.decode(errors="replace"))


def find_debugger() -> str:
    """Return the path of cuda-gdb. Raises FileNotFoundError."""
    found = shutil.which(_DEBUGGER, path=f"{os.environ.get('PATH', '')}:/usr/local/cuda/bin")
    if found is None:
        raise FileNotFoundError(_DEBUGGER)
    return found


def parse_kernels(text: str) -> tuple[str, ...]:
    """Return the kernels that the debugger tells of: "spin_kernel <<<(1,1,1),(1,1,1)>>>"."""
    frames = [(match["name"], match["grid"]) for match in _FRAME.finditer(text)]
    rows = [(match["name"], f"{match['grid']},{match['block']}") for match in _ROW.finditer(text)]
    known = {grid for _, grid in frames}
    found = [
        f"{_ARGUMENTS.sub('', name.strip())[:_LONGEST]} <<<{grid}>>>"
        for name, grid in (*frames, *(row for row in rows if row[1] not in known))
    ]
    return tuple(dict.fromkeys(found))[:_MOST_KERNELS]


# ---- files ---------------------------------------------------------------------------------------


def _find_pipe(facts: RankFacts) -> str | None:
    """Return the rank's own descriptor of its pipe, None if it has none open."""
    if facts.pid is None or not facts.alive:
        return None
    name = _compile_pattern(os.path.basename(_name_pattern(facts.environment, _PIPE)))
    try:
        for number, link in read_links(facts.pid).items():
            path = f"/proc/{facts.pid}/fd/{number}"
            if name.match(os.path.basename(link)) and stat.S_ISFIFO(os.stat(path).st_mode):
                return path
    except OSError:
        pass
    return None


def _list_dumps(facts: RankFacts, since: float) -> list[Path]:
    pattern = Path(_name_pattern(facts.environment, _FILE))
    name = _compile_pattern(pattern.name)
    # A folder may have the host in its name, and no other of these words.
    folder = Path(str(pattern.parent).replace("%h", socket.gethostname()))
    try:
        if not folder.is_absolute():
            folder = Path(os.readlink(f"/proc/{facts.pid}/cwd")) / folder
        with os.scandir(folder) as entries:
            return [
                Path(one.path)
                for one in entries
                if name.match(one.name) and one.is_file() and one.stat().st_mtime >= since
            ]
    except OSError:
        return []


def _name_pattern(environment: Mapping[str, str], variable: str) -> str:
    default = _DEFAULT_PIPE if variable == _PIPE else _DEFAULT_FILE
    return environment.get(variable) or default


def _compile_pattern(pattern: str) -> re.Pattern[str]:
    parts = {"%h": r"[^/]*", "%p": r"\d+", "%t": r"\d+"}
    words = re.split(r"(%[hpt])", pattern)
    return re.compile("".join(parts.get(word, re.escape(word)) for word in words) + r"$")
