"""A debugger that stopped a process and was forgotten. It needs leave to trace."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from .processes import helper

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
def waiting(path: Path) -> Iterator[None]:
    """Have a tracer listen at the Unix socket `path`: it stops each process that says its pid."""
    with helper(_TRACER, path):
        yield
