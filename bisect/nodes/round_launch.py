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
import resource
import threading
import time
from collections.abc import Sequence
from dataclasses import field, replace
from typing import Any

from ..attach.nodes import find_error_line
from ..base.lazy_dataclass import dataclass
from ..base.words import format_count
from ..search.node_starts import NodeSet, SetResult
from .engines import Engine, StartCommand
from .node_task import TaskOrders

READY_LIMIT = 60.0  # seconds until a task is ready: ssh, srun, and the import of Python from a disk
BEYOND = 20.0  # seconds after the time limit of a command, for a task to end it and to say so
LEAVE_LIMIT = 15.0  # seconds for tasks to end what they started, and themselves
_TICK = 0.2  # seconds between two looks at the clocks
_MOST_LINE = 1 << 20  # bytes of a line that a task says
_DESCRIPTORS_EACH, _DESCRIPTORS_OWN = 6, 200  # of an ssh: three pipes, both ends as it starts


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


def _allow_descriptors(count: int) -> None:
    """Raise our limit of open descriptors so far, where that is allowed: 1,024 is usual, and 300
    nodes by ssh take more.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + _DESCRIPTORS_OWN
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


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
        _allow_descriptors(len(self._commands) * _DESCRIPTORS_EACH)
        try:
            for command in self._commands:
                self._clients.append(await _start_client(command, self._heard))
            while any(one.result is None for one in self._sets):
                if self._stopping.is_set():
                    raise Stopped
                with contextlib.suppress(TimeoutError):
                    command, said = await asyncio.wait_for(self._heard.get(), _TICK)
                    self._take(command, said)
                self._look_at_clocks(time.monotonic(), begun)
        finally:
            await asyncio.gather(*(client.end() for client in self._clients))
        return self._sets

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

    def _take_end(self, number: int, one: StartedSet, node: str, said: dict[str, Any]) -> None:
        result, why = said.get("result"), str(said.get("why", ""))
        if result == "pass":
            one.passed.add(node)
            if len(one.passed) == len(one.nodes):
                one.settle("pass")
            return
        told = why if why.startswith(f"{node}: ") else f"{node}: {why}"
        one.settle("unknown" if result == "unknown" else "fail", told)
        self._tell(one, f"end {number}")

    def _lose(self, node: str, command: StartCommand) -> None:
        """Take in that a task is gone. One that was not ready was never started."""
        number, one = self._by_node[node]
        if node in one.passed or one.result is not None:
            return
        client = next(client for client in self._clients if client.command is command)
        said = find_error_line(client.errors) or f"status {client.status}"
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
                client.tell(line)


class _Client:
    """What started the tasks of some nodes: an ssh, or an srun."""

    def __init__(self, command: StartCommand, process: asyncio.subprocess.Process | None) -> None:
        self.command, self.process = command, process
        self.errors = ""
        self.readers: list[asyncio.Task[None]] = []

    @property
    def status(self) -> int | None:
        """Its exit status; None: it has not ended."""
        return self.process.returncode if self.process is not None else None

    def tell(self, line: str) -> None:
        """Send its tasks a line."""
        if self.process is not None and self.process.stdin is not None:
            with contextlib.suppress(OSError, RuntimeError):
                self.process.stdin.write(f"{line}\n".encode())

    async def end(self) -> None:
        """End its tasks by the end of their input, and itself, by force if need be."""
        process = self.process
        if process is None:
            return
        if process.stdin is not None:
            with contextlib.suppress(OSError, RuntimeError):
                process.stdin.close()
        for end in (None, process.terminate, process.kill):
            with contextlib.suppress(ProcessLookupError):
                if end is not None and process.returncode is None:
                    end()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), LEAVE_LIMIT)
                break
        for reader in self.readers:
            reader.cancel()
        await asyncio.gather(*self.readers, return_exceptions=True)


async def _start_client(
    command: StartCommand, heard: asyncio.Queue[tuple[StartCommand, dict[str, Any] | None]]
) -> _Client:
    try:
        process = await asyncio.create_subprocess_exec(
            *command.words,
            env=dict(command.environment),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=_MOST_LINE,
            start_new_session=True,  # a Ctrl-C on the terminal is not for it
        )
    except OSError as error:
        client = _Client(command, None)
        client.errors = f"{command.words[0]}: {error.strerror}"
        heard.put_nowait((command, None))
        return client
    client = _Client(command, process)
    errors = asyncio.create_task(_read_errors(client))
    client.readers = [errors, asyncio.create_task(_read_lines(client, heard, errors))]
    return client


async def _read_lines(
    client: _Client,
    heard: asyncio.Queue[tuple[StartCommand, dict[str, Any] | None]],
    errors: asyncio.Task[None],
) -> None:
    """Hand on what the tasks say; at the end that they are gone."""
    assert client.process is not None
    assert client.process.stdout is not None
    with contextlib.suppress(ValueError):  # a line that is too long: what says it is none of ours
        while line := await client.process.stdout.readline():
            with contextlib.suppress(ValueError, RecursionError):
                said = json.loads(line)
                if isinstance(said, dict) and "node" in said:
                    heard.put_nowait((client.command, said))
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(asyncio.shield(errors), 1.0)
        await asyncio.wait_for(client.process.wait(), 1.0)
    heard.put_nowait((client.command, None))


async def _read_errors(client: _Client) -> None:
    assert client.process is not None
    assert client.process.stderr is not None
    while block := await client.process.stderr.read(4096):
        client.errors = (client.errors + block.decode(errors="replace"))[-4096:]


def list_sets(sets: Sequence[NodeSet], order: Sequence[str]) -> list[tuple[str, ...]]:
    """Return sets as tuples, each in the order of the nodes."""
    return [tuple(node for node in order if node in one) for one in sets]
