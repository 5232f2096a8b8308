"""One round: tasks started on the nodes of all its sets, side by side, heard, and ended.

A set begins once all its tasks are ready, so how long it takes to start them counts for nobody,
and a node on which none can be started is not blamed: what came of its set is not known. The first
task of a set that fails ends the others of it. Whatever ends a round, its tasks are told to end,
and what started them is ended after `LEAVE_LIMIT` seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Sequence
from dataclasses import field, replace
from typing import Any

from ..base.client_program import (
    ClientProgram,
    allow_descriptors,
    find_error_line,
    start_client,
)
from ..base.lazy_dataclass import dataclass
from ..base.words import format_count
from ..search.node_starts import NodeSet, SetResult
from .engines import Engine, StartCommand
from .node_task import TaskOrders

READY_LIMIT = 60.0  # seconds until a task is ready: ssh, srun, and the import of Python from a disk
BEYOND = 20.0  # seconds after the time limit of a command, for a task to end it and to say so
LEAVE_LIMIT = 15.0  # seconds for tasks to end what they started, and themselves
_TICK = 0.2  # seconds between two looks at the clocks


@dataclass
class StartedSet:
    """A set of a round, and what is known of it."""

    nodes: tuple[str, ...]  # in order: the first one is MASTER_ADDR
    ready: set[str] = field(default_factory=set)
    passed: set[str] = field(default_factory=set)
    began: float | None = None  # monotonic: when all were ready
    seconds: float = 0.0
    result: SetResult | None = None
    why: str = ""

    def settle(self, result: SetResult, why: str = "") -> None:
        """Note what came of it, once."""
        if self.result is None:
            self.result, self.why = result, why
            self.seconds = time.monotonic() - self.began if self.began is not None else 0.0


class Stopped(Exception):
    """A round was ended before it was over: nothing came of it."""


def launch_round(
    engine: Engine, sets: Sequence[tuple[str, ...]], orders: TaskOrders, stopping: threading.Event
) -> list[StartedSet]:
    """Return what came of a start on each of these sets. Raises Stopped once `stopping` is set."""
    return asyncio.run(_RoundLaunch(engine, sets, orders, stopping).run())


class _RoundLaunch:
    def __init__(
        self,
        engine: Engine,
        sets: Sequence[tuple[str, ...]],
        orders: TaskOrders,
        stopping: threading.Event,
    ) -> None:
        self._sets = [StartedSet(one) for one in sets]
        self._by_node = {node: (i, one) for i, one in enumerate(self._sets) for node in one.nodes}
        numbers = tuple(range(len(sets)))
        self._commands = engine.make_commands(replace(orders, sets=tuple(sets), numbers=numbers))
        self._limit, self._stopping = orders.limit, stopping
        self._heard: asyncio.Queue[tuple[StartCommand, dict[str, Any] | None]] = asyncio.Queue()
        self._clients: list[_Client] = []

    async def run(self) -> list[StartedSet]:
        begun = time.monotonic()
        allow_descriptors(len(self._commands))
        try:
            for command in self._commands:
                self._clients.append(await self._start(command))
            while any(one.result is None for one in self._sets):
                if self._stopping.is_set():
                    raise Stopped
                with contextlib.suppress(TimeoutError):
                    command, said = await asyncio.wait_for(self._heard.get(), _TICK)
                    self._take(command, said)
                self._look_at_clocks(time.monotonic(), begun)
        finally:
            await asyncio.gather(*(one.program.end(LEAVE_LIMIT) for one in self._clients))
        return self._sets

    async def _start(self, command: StartCommand) -> _Client:
        """Start a client; what its tasks say is put into the queue, at the end that they are
        gone.
        """

        def hear(line: bytes | None) -> None:
            if line is None:
                self._heard.put_nowait((command, None))
                return
            with contextlib.suppress(ValueError, RecursionError):
                said = json.loads(line)
                if isinstance(said, dict) and "node" in said:
                    self._heard.put_nowait((command, said))

        program = await start_client(command.words, hear, command.environment)
        if command.told_first:
            program.tell(command.told_first)
        return _Client(command, program)

    def _take(self, command: StartCommand, said: dict[str, Any] | None) -> None:
        """Take in what a task said; None: what started the tasks has ended."""
        if said is None:
            for node in command.nodes:
                self._lose(node, command)
            return
        node = str(said.get("node"))
        if node not in command.nodes:
            return
        number, one = self._by_node[node]
        if said.get("is") == "ready" and one.result is None:
            one.ready.add(node)
            if len(one.ready) == len(one.nodes) and one.began is None:
                one.began = time.monotonic()
                self._tell(one, f"go {number}")
        elif said.get("is") == "over":
            self._take_end(number, one, node, said)
        elif said.get("ray") == "ended":
            self._lose(node, command, str(said.get("why", "")))

    def _take_end(self, number: int, one: StartedSet, node: str, said: dict[str, Any]) -> None:
        result, why = said.get("result"), str(said.get("why", ""))
        if result == "pass":
            one.passed.add(node)
            if len(one.passed) == len(one.nodes):
                one.settle("pass")
            return
        reason = why if why.startswith(f"{node}: ") else f"{node}: {why}"
        one.settle("unknown" if result == "unknown" else "fail", reason)
        self._tell(one, f"end {number}")

    def _lose(self, node: str, command: StartCommand, why: str = "") -> None:
        """Take in that a task is gone. One that was not ready was never started."""
        number, one = self._by_node[node]
        if node in one.passed or one.result is not None:
            return
        client = next(client for client in self._clients if client.command is command)
        program = client.program
        said = why or find_error_line(program.errors) or f"status {program.status}"
        if one.began is None:
            one.settle("unknown", f"{node}: could not be started: {said}")
        else:
            one.settle("fail", f"{node}: was lost meanwhile: {said}")
        self._tell(one, f"end {number}")

    def _look_at_clocks(self, now: float, begun: float) -> None:
        for number, one in enumerate(self._sets):
            if one.result is not None:
                continue
            if one.began is None and now - begun > READY_LIMIT:
                missing = [node for node in one.nodes if node not in one.ready]
                more = f" and {len(missing) - 4} more" if len(missing) > 4 else ""
                said = f"nothing was started within {READY_LIMIT:.0f} s"
                one.settle("unknown", f"{', '.join(missing[:4])}{more}: {said}")
                self._tell(one, f"end {number}")
            elif one.began is not None and now - one.began > self._limit + BEYOND:
                silent = [node for node in one.nodes if node not in one.passed]
                count = format_count(len(silent), "node")
                one.settle("fail", f"{silent[0]}: no answer from {count} after the time limit")
                self._tell(one, f"end {number}")

    def _tell(self, one: StartedSet, line: str) -> None:
        for client in self._clients:
            if not set(one.nodes).isdisjoint(client.command.nodes):
                client.program.tell(line)


@dataclass(frozen=True)
class _Client:
    """What started the tasks of some nodes: an ssh, or an srun."""

    command: StartCommand
    program: ClientProgram


def list_sets(sets: Sequence[NodeSet], order: Sequence[str]) -> list[tuple[str, ...]]:
    """Return sets as tuples, each in the order of the nodes."""
    return [tuple(node for node in order if node in one) for one in sets]
