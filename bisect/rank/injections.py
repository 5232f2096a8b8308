"""Hangs on purpose, each the real thing done to the real process: --inject KIND@PLACE[:rankN].

To add a kind, add a function here and its line in KINDS. The call that blocks stands in that
function itself, so that the stack shows it plainly. What a kind needs on the other end (a server,
the holder of a lock) is a small process, a child of the rank, which ends with the rank: it reads a
pipe whose other end only the rank has. Files lie in the job's temporary folder.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

from ..base.argument_types import nearest, wrong
from ..base.errors import UsageError
from ..base.lazy_dataclass import dataclass

if TYPE_CHECKING:
    import subprocess

    from ..base.checkpoints import Checkpoint
    from .walk import Context

FLAG = "--inject"
FOR_EVER = 10**8  # seconds: three years, in one call
TIMEOUTS = 3  # of the step's, that `slow` and `trickle` take
TRICKLE_EVERY = 0.5  # seconds between two bytes


@dataclass(frozen=True)
class Injection:
    """A `kind` of hang at a checkpoint or phase called `place`, on one rank (None: on all)."""

    kind: str
    place: str
    rank: int | None

    def matches(self, place: str, rank: int) -> bool:
        """Return whether it is meant for this rank at this checkpoint or phase."""
        return place == self.place and self.rank in (None, rank)

    def run(self, context: Context) -> None:
        """Hang, or what the kind is; `slow` and `trickle` return."""
        KINDS[self.kind](context)


def parse_injection(
    text: str, table: Sequence[Checkpoint] = (), aliases: Mapping[str, str] | None = None
) -> Injection:
    """Return what KIND@PLACE[:rankN] asks for; PLACE is a number or name in `table`, or a phase.

    Raises UsageError. Without a table the place is not looked up.
    """
    kind, at, rest = text.partition("@")
    place, colon, rank = rest.partition(":")
    number = rank.removeprefix("rank")
    if not at or not place or (colon and not (rank.startswith("rank") and number.isdecimal())):
        raise UsageError(
            f"{FLAG} cannot be {text!r}: it is KIND@CHECKPOINT or KIND@CHECKPOINT:rankN",
            f"For instance {FLAG} socket@wandb_logger:rank0; kinds are {', '.join(KINDS)}.",
        )
    if kind not in KINDS:
        raise wrong(FLAG, kind, tuple(KINDS))
    if table:
        place = _in_table(place, table, aliases or {})
    return Injection(kind, place, int(number) if colon else None)


def _in_table(place: str, table: Sequence[Checkpoint], aliases: Mapping[str, str]) -> str:
    """Return the name of the checkpoint or phase that `place` is. Number 0 is no step of a rank."""
    steps = {str(row.number): row.name for row in table if row.number}
    names = [*steps.values(), *(phase.name for row in table for phase in row.phases)]
    found = steps.get(place) or aliases.get(place, place)
    if found not in names:
        raise UsageError(
            f"{FLAG} names {place!r}, which is none of {', '.join(names)} "
            f"or {min(steps, key=int)} to {max(steps, key=int)}{nearest(place, names)}"
        )
    return found


# ---- in this process alone --------------------------------------------------------------------


def _sleep(context: Context) -> None:
    time.sleep(FOR_EVER)


def _gil(context: Context) -> NoReturn:
    import ctypes

    libc = ctypes.PyDLL(None)  # PyDLL, unlike CDLL, keeps the GIL during a call
    while True:  # a signal ends a sleep
        libc.sleep(FOR_EVER)


def _native(context: Context) -> NoReturn:
    import ctypes

    libc = ctypes.CDLL(None)
    while True:  # a signal ends a pause
        libc.pause()


def _spin(context: Context) -> NoReturn:
    while True:
        pass


def _stop(context: Context) -> None:
    signal.raise_signal(signal.SIGSTOP)


def _exit(context: Context) -> NoReturn:
    sys.exit(0)


def _raise(context: Context) -> NoReturn:
    raise RuntimeError(f"raised on purpose ({FLAG})")


def _kill_itself(context: Context) -> None:
    signal.raise_signal(signal.SIGKILL)


# ---- with another process ---------------------------------------------------------------------

# Each says a line when it is ready and ends when its standard input does.
_SILENT_SERVER = """
import socket, sys
with socket.create_server(("127.0.0.1", 0)) as server:
    server.settimeout(10)
    print(server.getsockname()[1], flush=True)
    connection = server.accept()
    sys.stdin.read()
"""
_TRICKLING_SERVER = """
import select, socket, sys, time
seconds, every = map(float, sys.argv[1:])
with socket.create_server(("127.0.0.1", 0)) as server:
    server.settimeout(10)
    print(server.getsockname()[1], flush=True)
    connection = server.accept()[0]
    end = time.monotonic() + seconds
    while time.monotonic() < end and not select.select([sys.stdin], [], [], every)[0]:
        connection.send(b".")
"""
_LOCK_HOLDER = """
import fcntl, sys
with open(sys.argv[1]) as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    print("held", flush=True)
    sys.stdin.read()
"""
_ENDLESS = """
import sys
print("here", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def _helper(program: str, *words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Yield a child that runs `program`, and the first line it said."""
    import subprocess

    pipe = subprocess.PIPE
    command = [sys.executable, "-I", "-S", "-c", program, *words]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as child:
        assert child.stdout is not None
        yield child, child.stdout.readline().strip()


def _socket(context: Context) -> None:
    import socket

    with (
        _helper(_SILENT_SERVER) as (_, port),
        socket.create_connection(("127.0.0.1", int(port))) as client,
    ):
        client.recv(1)


def _trickle(context: Context) -> None:
    import socket

    seconds = _three_timeouts(context)
    with (
        _helper(_TRICKLING_SERVER, str(seconds), str(TRICKLE_EVERY)) as (_, port),
        socket.create_connection(("127.0.0.1", int(port))) as client,
    ):
        while client.recv(1):
            pass


def _flock(context: Context) -> None:
    import fcntl
    import tempfile

    file, path = tempfile.mkstemp(prefix="hangbisect-", suffix=".lock")
    with _helper(_LOCK_HOLDER, path):
        fcntl.flock(file, fcntl.LOCK_EX)


def _fifo(context: Context) -> None:
    import tempfile

    path = os.path.join(tempfile.mkdtemp(prefix="hangbisect-"), "fifo")
    os.mkfifo(path)
    os.open(path, os.O_RDONLY)


def _child(context: Context) -> None:
    with _helper(_ENDLESS) as (child, _):
        child.wait()


# ---- slow, not hung ---------------------------------------------------------------------------


def _three_timeouts(context: Context) -> float:
    """Return the seconds that slow work takes; a step without a deadline can only stand still."""
    seconds: float = context.deadline or context.args.stall
    return TIMEOUTS * seconds


def _slow(context: Context) -> None:
    end = time.monotonic() + _three_timeouts(context)
    while time.monotonic() < end:
        primes = _primes(20_000)
        words = _write_numbers(primes)
        _in_order(words)
        _product(primes[:40])


def _primes(below: int) -> list[int]:
    found: list[int] = []
    for number in range(2, below):
        for prime in found:
            if prime * prime > number:
                found.append(number)
                break
            if number % prime == 0:
                break
        else:
            found.append(number)
    return found


def _write_numbers(numbers: list[int]) -> list[str]:
    words = []
    for number in numbers * 10:
        digits = ""
        while number:
            number, digit = divmod(number, 10)
            digits += "abcdefghij"[digit]
        words.append(digits)
    return words


def _in_order(words: list[str]) -> list[str]:
    ordered = []
    for length in sorted({len(word) for word in words}):
        same = [word for word in words if len(word) == length]
        ordered.extend(sorted(same))
    return ordered


def _product(numbers: list[int]) -> list[list[int]]:
    rows = []
    for left in numbers:
        row = []
        for right in numbers:
            row.append(sum(left * right % other for other in numbers))
        rows.append(row)
    return rows


KINDS: dict[str, Callable[[Context], None]] = {
    "sleep": _sleep,
    "gil": _gil,
    "native": _native,
    "spin": _spin,
    "stop": _stop,
    "socket": _socket,
    "flock": _flock,
    "fifo": _fifo,
    "child": _child,
    "exit": _exit,
    "raise": _raise,
    "kill": _kill_itself,
    "slow": _slow,
    "trickle": _trickle,
}
