"""What runs on each node of a round: it starts the command there, ends it in time, and says how it
ended.

Whoever starts it and this talk by lines. It says, as JSON, that it is ready, and in the end how the
command ended. It is told "go" once all nodes of its set are ready, and "end" when one of them has
failed: both with the number of the set, for srun gives its input to all tasks. When its input ends,
as with an ssh that is gone, it ends the command and itself; at its deadline as well. So nothing is
left on a node, whatever happens to who started it.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import IO, Any

from ..base.files import PACKAGE
from ..base.lazy_dataclass import dataclass
from ..base.words import format_seconds, join_lines
from ..monitor.ending import ProcessFamily

MARK_VARIABLE = "HANGBISECT_NODE_TASK"
NODE_NAMES_VARIABLE = "HANGBISECT_NODE_NAMES"  # the nodes of the set, for the command
TRY_AGAIN = 75  # exit status of a command that could not begin: EX_TEMPFAIL, sysexits.h
PORTS = range(20_000, 30_000)  # below those that a kernel hands out (ip_local_port_range: 32768)
GO_LIMIT = 180.0  # seconds until a task that is told nothing ends
_TICK = 0.1  # seconds between two looks at the command
_TAIL = 4096  # bytes of the end of what it printed


@dataclass(frozen=True)
class TaskOrders:
    """What a task is told when it is started."""

    sets: tuple[tuple[str, ...], ...]  # of the round, or of this node alone
    numbers: tuple[int, ...]  # of these sets
    first_port: int  # index in PORTS: MASTER_PORT of set 0 is there, that of set 1 the next
    limit: float  # seconds for the command
    command: tuple[str, ...] = ()  # empty: our probe
    folder: str = ""  # where it is started
    environment: Mapping[str, str] = field(default_factory=dict)
    node: str = ""  # which one this is; "": SLURMD_NODENAME tells
    addresses: Mapping[str, str] = field(default_factory=dict)  # of nodes whose names are none
    torch: bool = True  # the probe uses torch, where there is one


def run_node_task(orders: TaskOrders) -> int:
    """Run the command of this node's set once that is ready; return 0, whatever came of it."""
    node = orders.node or os.environ.get("SLURMD_NODENAME", "")
    place = next((i for i, one in enumerate(orders.sets) if node in one), None)
    if place is None:
        _write_event(node, "over", result="unknown", why=f"{node or 'this node'} is in no set")
        return 0
    number, members = orders.numbers[place], orders.sets[place]
    words = _TaskInput(number)
    _write_event(node, "ready")
    if words.wait_for_go(GO_LIMIT):
        with tempfile.TemporaryFile() as output:
            ending = _run_command(orders, node, members, words, output)
        if ending is not None:
            _write_event(node, "over", **ending)
    return 0


def make_environment(orders: TaskOrders, node: str, members: Sequence[str]) -> dict[str, str]:
    """Return the variables by which a command learns what its set is: those that torch reads, one
    process a node, and those of torchrun's options (PET_*: torch/distributed/argparse_util.py).
    """
    rank, size = str(members.index(node)), str(len(members))
    number = orders.numbers[orders.sets.index(tuple(members))]
    address = orders.addresses.get(members[0], members[0])
    port = str(PORTS[(orders.first_port + number) % len(PORTS)])
    return {
        **{"MASTER_ADDR": address, "MASTER_PORT": port, "RANK": rank, "WORLD_SIZE": size},
        **{"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "NODE_RANK": rank, "NNODES": size},
        **{"PET_NNODES": size, "PET_NODE_RANK": rank},
        **{"PET_MASTER_ADDR": address, "PET_MASTER_PORT": port},
        NODE_NAMES_VARIABLE: ",".join(members),
    }


class _TaskInput:
    """What the task is told, a line each, about its set."""

    def __init__(self, number: int) -> None:
        self._number, self._text, self.is_over = number, b"", False

    def wait_for_go(self, limit: float) -> bool:
        """Return whether the command is to be started; False: it is over."""
        until = time.monotonic() + limit
        while not self.is_over and time.monotonic() < until:
            if "go" in self.hear(until - time.monotonic()):
                return True
        return False

    def hear(self, limit: float) -> list[str]:
        """Return what is said to this set within `limit` seconds; "end" sets `is_over`."""
        if not select.select([0], [], [], max(0.0, limit))[0]:
            return []
        block = os.read(0, 4096)
        self.is_over |= not block
        *lines, self._text = (self._text + block).split(b"\n")
        messages = [line.decode(errors="replace").split() for line in lines]
        words = [one[0] for one in messages if one[1:] == [str(self._number)]]
        self.is_over |= "end" in words
        return words


def _run_command(
    orders: TaskOrders, node: str, members: Sequence[str], words: _TaskInput, output: IO[bytes]
) -> dict[str, Any] | None:
    """Return how the command ended; None: nobody wants to know any more."""
    mark = f"{os.getpid()}-{os.urandom(6).hex()}"
    begun = time.monotonic()
    options = {"torch": orders.torch, "limit": orders.limit}
    ours = (sys.executable, PACKAGE, "node_probe", json.dumps(options))
    environment = {**orders.environment, **make_environment(orders, node, members)}
    try:
        process = subprocess.Popen(
            orders.command or ours,
            cwd=orders.folder or None,
            env={**os.environ, **environment, MARK_VARIABLE: mark},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        why = f"{error.filename or orders.command[0]}: {error.strerror}"
        return {"result": "unknown", "why": f"could not be started: {why}", "seconds": 0.0}
    family = ProcessFamily(mark, MARK_VARIABLE)
    family.add_rank(process.pid)
    try:
        status = _follow(process, words, begun + orders.limit)
    finally:
        family.end_for_good()
        process.poll()
    seconds = time.monotonic() - begun
    if status is None and words.is_over:
        return None
    return {**_judge_end(status, read_last_line(output), seconds), "seconds": seconds}


def _follow(process: subprocess.Popen[bytes], words: _TaskInput, until: float) -> int | None:
    """Return the exit status; None: it did not end in time, or is not wanted any more."""
    while not words.is_over and time.monotonic() < until:
        words.hear(_TICK)
        status = process.poll()
        if status is not None:
            return status
    return None


def _judge_end(status: int | None, last: str, seconds: float) -> dict[str, str]:
    """Return the result of a command, and why in a sentence."""
    said = f": {last}" if last else ""
    if status == 0:
        return {"result": "pass", "why": ""}
    if status is None:
        return {"result": "fail", "why": f"not over after {format_seconds(seconds)}{said}"}
    if status == TRY_AGAIN:
        return {"result": "unknown", "why": f"could not begin{said}"}
    how = f"signal {-status}" if status < 0 else f"status {status}"
    return {"result": "fail", "why": f"ended with {how}{said}"}


def read_last_line(output: IO[bytes]) -> str:
    """Return the last line that a program wrote into a file, "" if there is none."""
    size = output.seek(0, os.SEEK_END)
    output.seek(max(0, size - _TAIL))
    lines = output.read().decode(errors="replace").splitlines()
    return join_lines(next((line for line in reversed(lines) if line.strip()), ""))[:300]


def _write_event(node: str, what: str, **more: object) -> None:
    line = json.dumps({"node": node, "is": what, **more}) + "\n"
    os.write(1, line.encode(errors="replace"))
