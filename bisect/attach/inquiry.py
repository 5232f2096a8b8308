"""One question to all machines of a job: each is reached by a client (an ssh, a kubectl, one srun
for all), told to look at the same moment, and asked for what nobody else has told already.

At most `window` clients run at once. The first of them begin to look together, once all are ready
or have failed, and after a third of the time limit in any case: their clocks are asked for, and
each is told a moment on its own. Each further one looks as soon as it is ready, when a client
before it has ended.

ClusterShell (1.10) has windows as well, and gateways to more hosts. It is not used: it runs an
event loop of its own (ClusterShell/Engine) in place of asyncio's, and a window is a semaphore here.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Sequence
from typing import Any

from ..base.client_program import ClientProgram, allow_descriptors, start_client
from ..base.lazy_dataclass import dataclass
from ..base.process_facts import Frame
from ..link.look_summary import ShownProcesses, read_stacks
from .node_facts import NodeFacts
from .node_messages import (
    HeardSummary,
    Message,
    MessageReader,
    put_together,
    read_summary,
)
from .nodes import Node, NodeAnswer, RemoteJob, describe_failure

READY_SHARE = 1 / 3  # of the time limit, after which nobody waits for who is not ready
# Of the time limit, for one step to have all machines ready, where it has some: srun ends the tasks
# of all of them where the slurmd of one has not answered for ten seconds (MessageTimeout).
STEP_SHARE = 1 / 4
MOST_READY = 30.0  # seconds of that: a machine that is not told to look ends (LOOK_LIMIT)
END_LIMIT = 15.0  # seconds for a machine to end its ranks
# Seconds for machines to say what their clocks show; then, that the order to look has arrived at
# the slowest of them: a way there is no longer than the longest there and back, and some on top.
_CLOCK_LIMIT, _ON_TOP = 0.5, 0.05
_LEAST_TIME = 1.0  # seconds for a further way to be worth trying
_LEAVE_LIMIT, _FORCE_LIMIT = 2.0, 0.2  # seconds for a client to end by itself, then by each signal


async def ask_nodes(job: RemoteJob, limit: float) -> list[NodeAnswer]:
    """Return what each machine answers within `limit` seconds, in their order."""
    inquiry = Inquiry(job, limit)
    try:
        return await inquiry.ask()
    finally:
        await inquiry.close()


@dataclass(frozen=True)
class EndedRanks:
    """What one machine has ended; `trouble` where it has not said so."""

    node: Node
    ended: tuple[int, ...] = ()
    left: tuple[int, ...] = ()  # still there, in the kernel
    trouble: str = ""


class _Lost(Exception):
    """No answer will come: the client is gone."""


class _AskedNode:
    """A machine, and what has come from it."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.name = ""  # as it calls itself: orders are addressed by it
        self.messages: asyncio.Queue[Message | None] = asyncio.Queue()
        self.facts: NodeFacts | None = None
        self.trouble = ""
        self.is_settled = False  # it is ready, or has failed
        self.tells_clock = False
        self.has_no_job = False

    async def next(self, until: float) -> Message:
        """Return the next message. Raises TimeoutError, or _Lost."""
        left = max(0.0, until - time.monotonic())
        message = await asyncio.wait_for(self.messages.get(), left)
        if message is None:
            raise _Lost
        return message


class _Group:
    """Machines that one client reaches."""

    def __init__(self, nodes: Sequence[Node], ways: Sequence[Sequence[str]]) -> None:
        self.nodes = [_AskedNode(node) for node in nodes]
        self.ways = ways
        self.client: ClientProgram | None = None
        self._reader = MessageReader()

    def hear(self, line: bytes | None) -> None:
        """Take a line of the client's, None for its end."""
        if line is None:
            for node in self.nodes:
                node.messages.put_nowait(None)
            return
        try:
            if (said := self._reader.take(line)) is not None:
                self._put(*said)
        except ValueError as error:
            name, why = error.args
            self._put(name, {"is": "trouble", "why": why})

    def _put(self, name: str, message: Message) -> None:
        for node in self.nodes:
            if len(self.nodes) == 1 or node.node.name == name:
                node.name = name
                node.messages.put_nowait(message)

    def tell(self, order: Message) -> None:
        """Send an order to all its machines."""
        if self.client is not None:
            self.client.tell(json.dumps(order))

    def describe_end(self) -> str:
        """Return why the client has ended without an answer."""
        if self.client is None:
            return "it was not asked"
        return describe_failure(self.client.status, self.client.errors)

    async def end(self, limit: float) -> None:
        """End the client, and have the nodes ready for another one."""
        client, self.client = self.client, None
        if client is not None:
            await client.end(limit)
        for node in self.nodes:
            node.messages = asyncio.Queue()


class _Start:
    """The moment at which the machines of the first window begin to look."""

    def __init__(self, groups: Sequence[_Group], limit: float) -> None:
        self._missing = {node.node for group in groups for node in group.nodes}
        self._groups: list[_Group] = []
        self._has_begun = not groups
        self._asked = 0.0  # when clocks were asked for, 0.0 before
        self._silent: set[_AskedNode] = set()  # whose clocks are not known, and may be soon
        self._offsets: dict[_AskedNode, float] = {}  # to be added to our clock to have its own
        self._longest = 0.0  # seconds to a machine and back
        self._timer = asyncio.get_running_loop().call_later(limit, self._ask_clocks)

    def settle(self, group: _Group, asked: _AskedNode) -> None:
        """Note that a machine is ready, or that it has failed."""
        if group not in self._groups:
            self._groups.append(group)
            if self._has_begun:
                group.tell({"is": "look"})
        if asked.tells_clock:
            self._silent.add(asked)
        self._missing.discard(asked.node)
        if not self._missing and not self._asked:
            self._ask_clocks()

    def note_clock(self, asked: _AskedNode, at: object) -> None:
        """Note what the clock of a machine has shown on its way back here."""
        now = time.monotonic()
        if isinstance(at, float) and asked in self._silent and self._asked:
            self._silent.discard(asked)
            self._longest = max(self._longest, now - self._asked)
            self._offsets[asked] = at - (self._asked + now) / 2
            if not self._silent:
                self._begin()

    def _ask_clocks(self) -> None:
        self._timer.cancel()
        self._asked = time.monotonic()
        if len(self._silent) < 2:
            self._begin()
            return
        for group in self._groups:
            if self._silent & {*group.nodes}:
                group.tell({"is": "clock"})
        self._timer = asyncio.get_running_loop().call_later(_CLOCK_LIMIT, self._begin)

    def _begin(self) -> None:
        self._timer.cancel()
        if self._has_begun:
            return
        self._has_begun = True
        # Who has not said what its clock shows is that far, or further: it looks at once.
        ahead = time.monotonic() + self._longest + _ON_TOP
        for group in self._groups:
            known = [one for one in group.nodes if one in self._offsets]
            group.tell({"is": "look", "at": {n.name: ahead + self._offsets[n] for n in known}})


class Inquiry:
    """The machines of a job, asked once. Their clients run until `close`, where there are no more
    than the window has: their ranks can be ended by them.
    """

    def __init__(self, job: RemoteJob, limit: float) -> None:
        self._job, self._limit = job, limit
        self._until = time.monotonic() + limit
        self._slots = asyncio.Semaphore(job.window)
        self._groups: list[_Group] = []
        self._stacks: dict[str, tuple[Frame, ...]] = {}
        self._claimed: set[str] = set()  # stacks that a machine is being asked for
        self._news = asyncio.Condition()  # of these two
        self._shown = ShownProcesses()

    async def ask(self) -> list[NodeAnswer]:
        """Return what each machine answers, in their order, and what is known of those that are
        asked nothing.
        """
        return [*await self._ask_all(), *self._job.absent]

    async def _ask_all(self) -> list[NodeAnswer]:
        alone = [_Group([node], node.ways) for node in self._job.nodes]
        if self._job.together and len(alone) > 1:
            step = _Group(self._job.nodes, (self._job.together,))
            if await self._ask_step(step):
                return _list_answers([step])
            await self.close()  # the step could not begin: each machine for itself
        await self._ask_groups(alone)
        return _list_answers(alone)

    async def _ask_step(self, step: _Group) -> bool:
        """Ask all machines by one step; return whether it has begun on all of them, or on none so
        far as there was time.
        """
        asking = asyncio.create_task(self._ask_groups([step]))
        until = time.monotonic() + self._limit * STEP_SHARE
        try:
            while not all(one.is_settled for one in step.nodes):
                if time.monotonic() > until and any(one.is_settled for one in step.nodes):
                    return False
                if asking.done():
                    break
                await asyncio.wait([asking], timeout=0.1)
            await asking
        finally:
            asking.cancel()
            await asyncio.wait([asking])
        has_begun = any(one.facts or one.name for one in step.nodes)
        return has_begun or time.monotonic() >= self._until

    async def end_ranks(self, spared: Node | None = None) -> list[EndedRanks]:
        """Have each machine but the `spared` one end the ranks that it has looked at, and what
        belongs to them; return what each of them says.
        """
        until = time.monotonic() + END_LIMIT
        groups = [group for group in self._groups if [n.node for n in group.nodes] != [spared]]
        asked = [node for group in groups for node in group.nodes if node.facts is not None]
        for group in groups:
            group.tell({"is": "end"})
        return list(await asyncio.gather(*(_hear_end(one, until) for one in asked)))

    async def close(self) -> None:
        """End all clients."""
        groups, self._groups = self._groups, []
        await asyncio.gather(*(group.end(_LEAVE_LIMIT) for group in groups))

    async def _ask_groups(self, groups: list[_Group]) -> None:
        allow_descriptors(min(len(groups), self._job.window))
        self._groups = groups
        patience = min((self._until - time.monotonic()) * READY_SHARE, MOST_READY)
        start = _Start(groups[: self._job.window], patience)
        stays = len(groups) <= self._job.window
        await asyncio.gather(*(self._ask_group(one, start, stays) for one in groups))

    async def _ask_group(self, group: _Group, start: _Start, stays: bool) -> None:
        async with self._slots:
            until = self._until if stays else time.monotonic() + self._limit
            for number, way in enumerate(group.ways):
                silent = [node for node in group.nodes if node.facts is None]
                if not silent or (number and until - time.monotonic() < _LEAST_TIME):
                    break
                await group.end(_LEAVE_LIMIT)
                group.client = await start_client(way, group.hear)
                asks = [self._ask_node(group, node, start, until) for node in silent]
                if not any(await asyncio.gather(*asks)):
                    break
            for node in group.nodes:
                start.settle(group, node)
            if not stays or all(node.facts is None for node in group.nodes):
                await group.end(_LEAVE_LIMIT if until > time.monotonic() else _FORCE_LIMIT)

    async def _ask_node(self, group: _Group, node: _AskedNode, start: _Start, until: float) -> bool:
        """Ask one machine; return whether another way to it may help."""
        trouble = ""
        try:
            while node.facts is None:
                message = await node.next(until)
                node.is_settled = True
                if message["is"] == "ready":
                    node.tells_clock = message.get("clock") is True
                    start.settle(group, node)
                elif message["is"] == "clock":
                    start.note_clock(node, message.get("at"))
                elif message["is"] == "summary":
                    node.facts = await self._complete(group, node, read_summary(message), until)
                elif message["is"] == "trouble":
                    trouble = str(message.get("why"))
                    node.has_no_job = message.get("no_job") is True
                    break
        except TimeoutError:
            trouble = f"no answer within {self._limit:.0f} s"
        except _Lost:
            trouble = group.describe_end()
        except (ValueError, KeyError) as error:
            trouble = str(error)
        node.is_settled = True
        known = [node.trouble] if node.trouble else []
        node.trouble = "; ".join(dict.fromkeys([*known, trouble])) if trouble else ""
        return bool(trouble) and until - time.monotonic() > _LEAST_TIME

    async def _complete(
        self, group: _Group, node: _AskedNode, heard: HeardSummary, until: float
    ) -> NodeFacts:
        """Return what a machine has seen, once all its stacks are known. Raises as `next` does."""
        pids = self._shown.choose(heard.looks, heard.facts.quiet)
        stacks = heard.looks.stacks
        texts: dict[str, Any] = {}
        while True:
            missing = stacks - self._stacks.keys()
            mine = missing - self._claimed
            if mine or pids:
                texts |= await self._fetch(group, node, mine, pids, until)
                pids = []
            elif not missing:
                return put_together(heard, self._stacks, texts)
            else:
                await self._wait_for_others(stacks, until)

    async def _wait_for_others(self, stacks: frozenset[str], until: float) -> None:
        """Wait until these are all known, or one that is not is asked of nobody any more."""

        def is_clear() -> bool:
            missing = stacks - self._stacks.keys()
            return not missing or not missing <= self._claimed

        async with self._news:
            left = max(0.0, until - time.monotonic())
            await asyncio.wait_for(self._news.wait_for(is_clear), left)

    async def _fetch(
        self, group: _Group, node: _AskedNode, stacks: frozenset[str], pids: list[int], until: float
    ) -> dict[str, Any]:
        """Have a machine tell these stacks; return the texts of these processes, by pid."""
        self._claimed |= stacks
        try:
            asked = {"stacks": sorted(stacks), "pids": pids}
            group.tell({"is": "details", "of": {node.name: asked}})
            message = await node.next(until)
            answered = read_stacks(message.get("stacks"))
            if stacks - answered.keys():
                raise ValueError("it does not tell the stacks that it has")
            self._stacks |= answered
            return dict(message.get("texts", {}))
        finally:
            self._claimed -= stacks
            async with self._news:
                self._news.notify_all()


async def _hear_end(node: _AskedNode, until: float) -> EndedRanks:
    with contextlib.suppress(TimeoutError, _Lost, TypeError, ValueError):
        while True:
            message = await node.next(until)
            if message["is"] == "ended":
                ended, left = (tuple(map(int, message.get(n, ()))) for n in ("ended", "left"))
                return EndedRanks(node.node, ended, left)
    return EndedRanks(node.node, trouble="it does not say that it has ended anything")


def _list_answers(groups: Sequence[_Group]) -> list[NodeAnswer]:
    return [
        NodeAnswer(one.node, one.facts)
        if one.facts
        else NodeAnswer(one.node, None, _word_trouble(one), one.has_no_job)
        for group in groups
        for one in group.nodes
    ]


def _word_trouble(asked: _AskedNode) -> str:
    said = f"; {asked.node.said}" if asked.node.said else ""
    return f"{asked.trouble or 'it told nothing'}{said}"
