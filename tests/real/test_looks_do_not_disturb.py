"""Every wait lasts as long with looks as without, and ends in the same way."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from hangbisect.evidence.look import Target, take_looks

if TYPE_CHECKING:
    import subprocess

Start = Callable[..., "subprocess.Popen[str]"]

DEADLINE = 60.0
SECONDS = 8.0  # long enough to be looked at, on a busy machine
# By the C library itself: Python would take up again what was cut short.
WAITS = """
import ctypes, errno, fcntl, os, select, socket, struct, sys, tempfile, time
kind, seconds = sys.argv[1], 8
c = ctypes.CDLL(None, use_errno=True)
whole_wait = ctypes.create_string_buffer(struct.pack("ll", seconds, 0))
limit = struct.pack("ll", seconds, 0)
buffer = ctypes.create_string_buffer(64)
a, b = socket.socketpair()
r, w = os.pipe()
file = tempfile.TemporaryFile()
server = socket.create_server(("127.0.0.1", 0), backlog=0)

forked = 0.0

def at_the_end(do):
    global forked
    forked = time.monotonic()
    if os.fork() == 0:
        time.sleep(seconds)
        do()
        os._exit(0)

def connect():
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
    host = socket.inet_aton("127.0.0.1")
    address = struct.pack("=H", socket.AF_INET) + struct.pack("!H4s8x", port, host)
    return c.connect(client.fileno(), address, len(address))

if kind == "flock":
    other = os.open(f"/proc/self/fd/{file.fileno()}", os.O_RDWR)
    fcntl.flock(other, fcntl.LOCK_EX)
    at_the_end(lambda: fcntl.flock(other, fcntl.LOCK_UN))
if kind == "read":
    at_the_end(lambda: os.write(w, b"x"))
if kind == "connect":  # nobody takes the connections, and there is room for few
    port = server.getsockname()[1]
    first = [socket.socket() for _ in range(4)]
    for one in first:
        one.setblocking(False)
        one.connect_ex(("127.0.0.1", port))
    time.sleep(0.2)
if kind == "recv":
    a.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
if kind == "semtimedop":
    semaphore = c.semget(0, 1, 0o600)
if kind == "epoll_wait":
    epoll = select.epoll()
    epoll.register(a, select.EPOLLIN)
call = {
    "sleep": lambda: c.nanosleep(whole_wait, buffer),
    "poll": lambda: c.poll(struct.pack("ihh", a.fileno(), select.POLLIN, 0), 1, seconds * 1000),
    "futex": lambda: c.syscall(FUTEX, buffer, 128, 0, whole_wait, None, 0),
    "connect": connect,
    "flock": lambda: c.flock(file.fileno(), fcntl.LOCK_EX),
    "read": lambda: c.read(r, buffer, 1),
    "epoll_wait": lambda: c.epoll_wait(epoll.fileno(), buffer, 1, seconds * 1000),
    "recv": lambda: c.recv(a.fileno(), buffer, 1, 0),
    "semtimedop": lambda: c.semtimedop(semaphore, struct.pack("Hhh", 0, -1, 0), 1, whole_wait),
}[kind]
FUTEX = {"x86_64": 202, "aarch64": 98}[os.uname().machine]
ctypes.set_errno(0)
print("now", flush=True)
begun = forked or time.monotonic()
result = call()
print(time.monotonic() - begun, result, errno.errorcode.get(ctypes.get_errno(), 0), flush=True)
if kind == "semtimedop":
    c.semctl(semaphore, 0, 0)  # IPC_RMID
"""
# The system call that each waits in, and what it returns when nothing cuts it short. One that a
# look has paused may be taken up again as another (restart_syscall(2)).
CALLS = {
    "sleep": {"nanosleep", "clock_nanosleep", "restart_syscall"},
    "poll": {"poll", "ppoll", "restart_syscall"},
    "futex": {"futex", "restart_syscall"},
    "connect": {"connect"},
    "flock": {"flock"},
    "read": {"read"},
    "epoll_wait": {"epoll_wait", "epoll_pwait"},
    "recv": {"recvfrom"},
    "semtimedop": {"semtimedop"},
}
RIGHT = {
    "sleep": "0 0",
    "poll": "0 0",
    "futex": "-1 ETIMEDOUT",
    "connect": "-1 EINPROGRESS",
    "flock": "0 0",
    "read": "1 0",
    "epoll_wait": "0 0",
    "recv": "-1 EAGAIN",
    "semtimedop": "-1 EAGAIN",
}


def test_each_wait_lasts_as_long_with_looks_as_without(start: Start) -> None:
    looked_at = {kind: start(sys.executable, "-c", WAITS, kind) for kind in RIGHT}
    left_alone = {kind: start(sys.executable, "-c", WAITS, kind) for kind in RIGHT}
    for process in (*looked_at.values(), *left_alone.values()):
        assert process.stdout is not None
        assert process.stdout.readline() == "now\n", process.stderr and process.stderr.read()
    calls: dict[str, set[str]] = {kind: set() for kind in RIGHT}
    end = time.monotonic() + DEADLINE
    while any(p.poll() is None for p in looked_at.values()) and time.monotonic() < end:
        there = [(kind, p) for kind, p in looked_at.items() if p.poll() is None]
        looks = asyncio.run(take_looks([Target(p.pid) for _, p in there]))
        for (kind, _), one in zip(there, looks, strict=True):
            calls[kind] |= {k.syscall.name for k in one.kernel[:1] if k.syscall and one.threads}
    assert {kind: _result(p) for kind, p in looked_at.items()} == RIGHT
    assert {kind: _result(p) for kind, p in left_alone.items()} == RIGHT
    assert [kind for kind in RIGHT if not calls[kind] & CALLS[kind]] == []


def _result(process: subprocess.Popen[str]) -> str:
    """Return what the call returned, and its time if that was too short."""
    assert process.stdout is not None
    seconds, _, result = process.stdout.read().strip().partition(" ")
    too_short = float(seconds) < SECONDS - 0.05
    return f"{result} after {seconds} s" if too_short else result
