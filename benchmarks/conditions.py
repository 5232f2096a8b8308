"""Ways to take something away from a job, for real: each gives it back when its block is left.

They need root, for mounts, and Linux on x86-64 or AArch64.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from jobs import Running, until

_SCRIPTS = Path(sys.executable).parent
TORCHRUN = (str(_SCRIPTS / "torchrun"), "--standalone", "--nproc_per_node=2")


@dataclass
class Taken:
    """How a job is started without something, and what is done while it runs and at its end."""

    launcher: list[str] = field(default_factory=lambda: list(TORCHRUN))
    environ: dict[str, str] = field(default_factory=dict)
    arguments: list[str] = field(default_factory=list)
    meanwhile: Callable[[Running], None] = lambda running: None
    afterwards: Callable[[], None] = lambda: None
    logs: Path | None = None  # where the launcher puts what ranks print


@contextlib.contextmanager
def nothing(here: Path) -> Iterator[Taken]:
    """Take nothing away."""
    yield Taken()


@contextlib.contextmanager
def py_spy(here: Path) -> Iterator[Taken]:
    """A Python with the same packages, but without their scripts: py-spy is nowhere to be found."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", here / "venv"], check=True)
    packages = next((here / "venv" / "lib").glob("python*/site-packages"))
    theirs = sysconfig.get_path("purelib")
    (packages / "theirs.pth").write_text(f"import site; site.addsitedir({theirs!r})\n")
    folders = os.environ["PATH"].split(os.pathsep)
    path = os.pathsep.join(f for f in folders if not shutil.which("py-spy", path=f))
    python = str(here / "venv" / "bin" / "python")
    launcher = [python, "-m", "torch.distributed.run", *TORCHRUN[1:]]
    yield Taken(launcher, {"PATH": path})


# A filter as containers have it: every system call but those that read another process's memory.
_FILTER = """
import ctypes, os, platform, struct, sys
calls = {"x86_64": (101, 310, 311), "aarch64": (117, 270, 271)}[platform.machine()]
steps = [(0x20, 0, 0, 0)]  # load the number of the call
steps += [(0x15, len(calls) - n, 0, call) for n, call in enumerate(calls)]  # one of them: refuse
steps += [(0x06, 0, 0, 0x7FFF0000), (0x06, 0, 0, 0x00050001)]  # allow, or EPERM
code = b"".join(struct.pack("HBBI", *step) for step in steps)
buffer = ctypes.create_string_buffer(code)
program = struct.pack("HxxxxxxP", len(steps), ctypes.addressof(buffer))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
assert libc.prctl(22, 2, program, 0, 0) == 0, os.strerror(ctypes.get_errno())  # PR_SET_SECCOMP
os.execvp(sys.argv[1], sys.argv[1:])
"""


@contextlib.contextmanager
def tracing(here: Path) -> Iterator[Taken]:
    """ptrace(2) and process_vm_readv(2) refused, by seccomp, as in many containers.

    Nothing can be paused then, but memory can still be read through /proc/PID/mem.
    """
    yield Taken([sys.executable, "-I", "-S", "-c", _FILTER, *TORCHRUN])


@contextlib.contextmanager
def reading_ranks(here: Path) -> Iterator[Taken]:
    """Root without CAP_SYS_PTRACE, as in a container, and ranks that nobody may read.

    They say so themselves (PR_SET_DUMPABLE 0): of /proc/PID only what is everyone's is left.
    """
    code = "import ctypes, os\nif 'RANK' in os.environ: ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\n"
    (here / "site").mkdir()
    (here / "site" / "sitecustomize.py").write_text(code)
    without = ["setpriv", "--bounding-set=-sys_ptrace"]
    yield Taken([*without, *TORCHRUN], {"PYTHONPATH": str(here / "site")})


@contextlib.contextmanager
def writing(here: Path) -> Iterator[Taken]:
    """A run folder on a file system that is mounted read-only."""
    with _mounted(here / "run", "-t", "tmpfs", "-o", "ro", "none"):
        yield Taken()


@contextlib.contextmanager
def room(here: Path) -> Iterator[Taken]:
    """A run folder on a file system without room."""
    with _mounted(here / "run", "-t", "tmpfs", "-o", "size=64k", "none"):
        with contextlib.suppress(OSError), open(here / "run" / "fills", "wb", 0) as file:
            while file.write(b"." * 4096):
                pass
        yield Taken()


@contextlib.contextmanager
def room_later(here: Path) -> Iterator[Taken]:
    """A run folder with little room, which the run's own files soon fill; logs are elsewhere."""
    with _mounted(here / "run", "-t", "tmpfs", "-o", "size=16k", "none"):
        yield Taken(arguments=["--logs-path", str(here / "logs")])


@contextlib.contextmanager
def answers(here: Path) -> Iterator[Taken]:
    """A run folder on a file system that is frozen from the beginning."""
    with _freezable(here) as (freeze, thaw):
        freeze()
        yield Taken(afterwards=thaw)


@contextlib.contextmanager
def answers_later(here: Path) -> Iterator[Taken]:
    """A run folder on a file system that freezes during the run; the logs are elsewhere."""
    with _freezable(here) as (freeze, thaw):

        def wait_and_freeze(running: Running) -> None:
            until(lambda: ": Tokenizer loaded" in running.said(), 60, running.process)
            freeze()

        logs = ["--logs-path", str(here / "logs")]
        yield Taken(arguments=logs, meanwhile=wait_and_freeze, afterwards=thaw)


@contextlib.contextmanager
def terminal_by_tee(here: Path) -> Iterator[Taken]:
    """The ranks' lines go through torchrun, into files and to its own output."""
    logs = here / "torchrun-logs"
    yield Taken([*TORCHRUN, "--tee", "3", "--log-dir", str(logs)], logs=logs)


@contextlib.contextmanager
def terminal_by_redirects(here: Path) -> Iterator[Taken]:
    """The ranks' lines go into files of torchrun's, and nowhere else."""
    logs = here / "torchrun-logs"
    yield Taken([*TORCHRUN, "--redirects", "3", "--log-dir", str(logs)], logs=logs)


# A full pipe as standard output: its other end is open, and nobody reads it.
_UNREAD = """
import fcntl, os, sys
reader, writer = os.pipe()
fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
os.set_inheritable(reader, True)
os.dup2(writer, 1)
os.execvp(sys.argv[1], sys.argv[1:])
"""


@contextlib.contextmanager
def reader(here: Path) -> Iterator[Taken]:
    """A pipe as standard output that nobody reads; it takes 4096 bytes."""
    yield Taken([sys.executable, "-I", "-S", "-c", _UNREAD, *TORCHRUN])


@contextlib.contextmanager
def _mounted(place: Path, *how: str) -> Iterator[None]:
    place.mkdir()
    subprocess.run(["mount", *how, str(place)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


@contextlib.contextmanager
def _freezable(here: Path) -> Iterator[tuple[Callable[[], None], Callable[[], None]]]:
    """Mount an ext4 at the run folder; yield what freezes it and what thaws it."""
    image, place = here / "image", here / "run"
    with open(image, "wb") as file:
        file.truncate(32 << 20)
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)

    def thaw() -> None:
        subprocess.run(["fsfreeze", "--unfreeze", str(place)], stderr=subprocess.DEVNULL)
        time.sleep(0.2)  # what was killed meanwhile ends now

    with _mounted(place, "-o", "loop,noatime", str(image)):
        try:
            yield lambda: _freeze(place), thaw
        finally:
            thaw()


def _freeze(place: Path) -> None:
    subprocess.run(["fsfreeze", "--freeze", str(place)], check=True)
