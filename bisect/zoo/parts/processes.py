"""Helper processes of a case and their end, and what they do.

Programs of a case: stand-ins for real ones, a C library, a terminal at which nobody types, a
debugger that stopped a process and was forgotten (it needs leave to trace). Communication in which
the other side is missing: locks on files and semaphores that a process outside the job holds, FIFOs
that nobody opens or reads, a Unix socket whose service says nothing.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

# In front of each program: it ends when its standard input does, whatever it is doing then. If it
# has an `at_end`, that is called first.
_ENDS_WITH_ITS_INPUT = """
import os, sys, threading
def _wait_for_the_end():
    sys.stdin.buffer.read()
    try:
        globals().get("at_end", int)()
    finally:
        os._exit(0)
threading.Thread(target=_wait_for_the_end, daemon=True).start()
def ready(word=""):
    print(word, flush=True)
"""


@dataclass(frozen=True)
class Helper:
    """A helper process that is ready; `said` is the word it was ready with (a port, say)."""

    pid: int
    said: str


@contextlib.contextmanager
def helper(program: str, *words: object, limit: float = 10.0) -> Iterator[Helper]:
    """Run a Python program (its source) beside the job until the block is left.

    The program has `words` in sys.argv[1:], calls `ready("...")` once it is, and may then block as
    it likes. A function `at_end` of it is called at the end, also when we are killed; it has
    `limit` seconds. Standard library only. Raises RuntimeError if it ends before it is ready.
    """
    command = [sys.executable, "-I", "-S", "-c", _ENDS_WITH_ITS_INPUT + program, *map(str, words)]
    child = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is for us: what it undoes must not be cut short
    )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        said = child.stdout.readline()
        if not said:
            raise RuntimeError(f"a helper of this case ended at once (status {child.wait()})")
        yield Helper(child.pid, said.strip())
    finally:
        child.stdin.close()
        child.stdout.close()
        try:
            child.wait(limit)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def put_on_path(folder: Path, programs: Mapping[str, str]) -> str:
    """Write shell scripts into `folder`/bin, by name; return a PATH that finds them first.

    End each with `exec`, so that nothing is left when it is killed: "exec sleep 1000".
    """
    bin = folder / "bin"
    bin.mkdir(parents=True, exist_ok=True)
    for name, script in programs.items():
        file = bin / name
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)
    return f"{bin}{os.pathsep}{os.environ.get('PATH', '')}"


def put_stuck_on_path(folder: Path, name: str, port: int) -> str:
    """Write a program that waits for a word from 127.0.0.1:`port`; return a PATH that finds it.

    It keeps its name, which a shell's `exec` would take from it.
    """
    path = put_on_path(folder, {name: ""})
    script = f"#!/bin/bash\nexec 3<>/dev/tcp/127.0.0.1/{port}\nread -r answer <&3\n"
    (folder / "bin" / name).write_text(script)
    return path


COMPILER_LIMIT = 60.0  # seconds for the compiler


def compile_library(folder: Path, name: str, source: str) -> Path:
    """Compile `source` as the shared library lib`name`.so in `folder`; needs "gcc"."""
    file, library = folder / f"{name}.c", folder / f"lib{name}.so"
    file.write_text(source)
    command = ["gcc", "-O1", "-g", "-shared", "-fPIC", "-o", str(library), str(file)]
    subprocess.run(command, check=True, timeout=COMPILER_LIMIT)
    return library


# Becomes the command itself, with the terminal's one side as its three streams; a child copies what
# is written to it to where our output went, and ends with the last process that has the terminal.
_AT_A_TERMINAL = """
import os, pty, sys
ours, theirs = pty.openpty()
if os.fork() == 0:
    os.close(theirs)
    while True:
        try:
            os.write(1, os.read(ours, 65536))
        except OSError:
            os._exit(0)
os.close(ours)
for stream in range(3):
    os.dup2(theirs, stream)
os.execvp(sys.argv[1], sys.argv[1:])
"""

TERMINAL = (sys.executable, "-I", "-S", "-c", _AT_A_TERMINAL)  # words in front of a command


_UNATTENDED = """
import pty
master, slave = pty.openpty()
ready(os.ttyname(slave))
while True:  # what the job prints must go somewhere, or printing would block
    os.read(master, 4096)
"""


@contextlib.contextmanager
def unattended_terminal() -> Iterator[str]:
    """A terminal (its path) that shows what is printed and at which nobody ever types."""
    with helper(_UNATTENDED) as terminal:
        yield terminal.said


# PTRACE_SEIZE and PTRACE_INTERRUPT, ptrace(2): no signal is sent. Whoever connects and says its
# pid is stopped. The tracer's end lets it go on.
_TRACER = """
import ctypes, socket, struct
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long] * 4
with socket.socket(socket.AF_UNIX) as server:
    server.bind(sys.argv[1])
    server.listen()
    ready()
    kept = []
    while True:
        connection, _ = server.accept()
        kept.append(connection)
        pid = int(connection.recv(64))
        for request in (0x4206, 0x4207):
            if libc.ptrace(request, pid, 0, 0):
                raise OSError(ctypes.get_errno(), f"ptrace({request:#x}, {pid})")
"""


@contextlib.contextmanager
def waiting_tracer(path: Path) -> Iterator[None]:
    """Have a tracer listen at the Unix socket `path`: it stops each process that says its pid."""
    with helper(_TRACER, path):
        yield


_FLOCK = """
import fcntl, time
path, seconds = sys.argv[1], float(sys.argv[2])
os.makedirs(os.path.dirname(path), exist_ok=True)
file = open(path, "a")
fcntl.flock(file, fcntl.LOCK_EX)
ready("held")
if seconds:
    time.sleep(seconds)
    file.close()
threading.Event().wait()
"""


@contextlib.contextmanager
def hold_flock(path: Path, seconds: float = 0.0) -> Iterator[int]:
    """Have another process hold flock(2) on `path`, which is made; yield its pid.

    It lets go after `seconds`, with 0 not before the block is left.
    """
    with helper(_FLOCK, path, seconds) as holder:
        yield holder.pid


_SILENT_SERVICE = """
import socket
with socket.socket(socket.AF_UNIX) as server:
    server.bind(sys.argv[1])
    server.listen(128)
    ready()
    kept = []
    while True:
        kept.append(server.accept())
"""

# Belongs to the process, not to the open file: fcntl_locking(2).
_RECORD_LOCK = """
import fcntl
file = open(sys.argv[1], "w")
fcntl.lockf(file, fcntl.LOCK_EX)
ready()
threading.Event().wait()
"""


@contextlib.contextmanager
def silent_unix_socket(path: Path) -> Iterator[int]:
    """A service at the Unix socket `path` that accepts and never says a word; yield its pid."""
    with helper(_SILENT_SERVICE, path) as service:
        yield service.pid


@contextlib.contextmanager
def hold_record_lock(path: Path) -> Iterator[int]:
    """Have another process hold a POSIX lock on the file `path`, which is made; yield its pid."""
    with helper(_RECORD_LOCK, path) as holder:
        yield holder.pid


# A set of one semaphore, which a child took and died with: it had not asked for SEM_UNDO.
_SEMAPHORE = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
IPC_PRIVATE, IPC_RMID, SETVAL = 0, 0, 16
number = libc.semget(IPC_PRIVATE, 1, 0o600)
if number < 0:
    raise OSError(ctypes.get_errno(), "semget")
def at_end():
    libc.semctl(number, 0, IPC_RMID)
libc.semctl(number, 0, SETVAL, 1)
child = os.fork()
if not child:
    libc.semop(number, (ctypes.c_short * 3)(0, -1, 0), 1)
    os._exit(1)
os.waitpid(child, 0)
ready(number)
threading.Event().wait()
"""


@contextlib.contextmanager
def taken_semaphore() -> Iterator[int]:
    """A System V semaphore (its id) that a dead process has; waiting for it is semop(2)."""
    with helper(_SEMAPHORE) as semaphore:
        yield int(semaphore.said)


# Opened for reading and writing it never blocks (fifo(7)); what is written fills it up.
_OPEN_BUT_UNREAD = """
import fcntl
descriptor = os.open(sys.argv[1], os.O_RDWR)
fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, 4096)
ready()
threading.Event().wait()
"""


def unopened_fifo(path: Path) -> Path:
    """Make a FIFO that nobody opens: who opens it waits for the other end."""
    os.mkfifo(path)
    return path


@contextlib.contextmanager
def unread_fifo(path: Path) -> Iterator[Path]:
    """A FIFO that a process has open and never reads: it takes 4096 bytes, and then no more."""
    os.mkfifo(path)
    with helper(_OPEN_BUT_UNREAD, path):
        yield path
