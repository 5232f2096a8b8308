"""The lead: hears all nodes of a job, and once the clock of one has run out has all of them look at
one moment, and one verdict made of what they report.

A node is who has proved itself (channel.py) and speaks of ranks that no other node has. Those that
have no token to do so are heard by a lead of their own, if at all: it orders nothing, and nothing
that they say comes to the others. What is wrong with what comes is said in one sentence, and ends
that connection alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace

from ..base.client_program import allow_descriptors
from ..base.identity import RankId
from ..base.words import format_ranks, join_lines
from .channel import (
    Address,
    Channel,
    Credentials,
    Message,
    Refused,
    limit_segments,
    make_body,
    set_options,
)
from .messages import (
    FROM_NODE,
    PARTS_OF_REPORTS,
    AtBarrier,
    Barriers,
    Beat,
    Digest,
    Done,
    Echo,
    Join,
    Judged,
    Leave,
    LookDetails,
    LookNow,
    NodeWord,
    RankLooks,
    Report,
    Said,
    TableRow,
    TableRows,
    decode,
    describe_rank_words,
    encode,
    list_ranks,
)
from .node_barriers import NodeBarriers
from .peers import LEASE, NodeAnswer, Peer, Unseen, lease_of
from .reports import Reports, ToldRanks

# Seconds; of more nodes than this it is so many beats in a second, as each is answered: a beat of
# 1,250 nodes, with its answers and all else that they say, takes 0.1 s of a processor.
BEAT_EVERY, _BEATS_IN_A_SECOND = 1.0, 2500
ANSWER_LIMIT = 8.0  # seconds for nodes to look and report: three looks within two seconds, and time
# As long as reports still come in it is waited for longer: seconds from one part to the next, and
# in all. Of 10,000 ranks they take ten seconds of a processor.
_REPORT_PAUSE, _LAST_REPORT = 2.0, 30.0
MOST_UNKNOWN = 64  # connections that have not proved themselves; the oldest makes room
MOST_NODES = 16_384
BACKLOG = 1024  # connections that nobody has taken yet: the nodes of a job start at one moment
_MOST_SAID = 40  # sentences, each once
# Each beat tells of some of the nodes, in turn: of all of them in so many beats, or, of many nodes,
# of so many with each. To 1,250 nodes that is 2.6 MB/s; all of them every five beats were 40 MB/s.
_ROSTER_BEATS, _WORDS_OF_BEAT = 5, 16
_FEW_NODES = 64  # so many hear at once of one that comes: it goes to each of them
_MOST_DONE = 64  # things for which ranks of other nodes wait
_ANSWERS_EVERY, _MANY_NODES = 0.05, 50  # seconds between two looks at who has, of so many


Judge = Callable[[Sequence[NodeAnswer], Sequence[Unseen], NodeAnswer], Awaitable[Judged]]


class Lead:
    """Serves the nodes of one job."""

    def __init__(
        self, credentials: Credentials, host: str, judge: Judge, say: Callable[[str], None]
    ) -> None:
        """`judge` makes the verdict; `say` tells a person. Nothing is heard before listen()."""
        self._credentials, self._host = credentials.of_listener(), host
        self.orders = credentials.can_prove  # else it hears what nodes tell, and nothing more
        self._judge, self._say = judge, say
        self.unproved: Lead | None = None  # who hears the nodes that have no token
        self.why_not: Callable[[Join], str] = lambda join: ""  # a node cannot be one of this job's
        self._peers: dict[str, Peer] = {}  # by name of the node
        self._owners: dict[int, Peer] = {}  # by rank: the node that came with it last
        self._unknown: dict[Channel, None] = {}
        self._told: set[str] = set()
        self._servers: list[asyncio.Server] = []
        self._reports = Reports(
            lambda node, wanted: self._send(self._peers[node], wanted),
            self._take_report,
            self._give_up,
        )
        self._turn = asyncio.Lock()  # to take in a part of a report
        self._inquiry = 0
        self._inquiring: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._barriers = NodeBarriers()
        self._done: list[str] = []  # for which ranks of other nodes may wait
        self.has_table = False  # of the ranks of all nodes: they tell rows for it then
        self.on_opened: Callable[[Sequence[tuple[Join, AtBarrier]]], None] = lambda arrived: None
        self._beating: asyncio.Task[None] | None = None

    def hear_unproved(self, why_not: Callable[[Join], str]) -> None:
        """Have nodes without a token be heard as well, but those of which `why_not` says in words
        why they are none of this job's; "" of others. Only before listen().
        """
        self._credentials = replace(self._credentials, is_open=True)
        bare = Credentials(self._credentials.job)
        self.unproved = Lead(bare, self._host, self._judge, self._say)
        self.unproved.why_not = why_not

    async def listen(self, address: str, port: int) -> int:
        """Listen there, and return the port. Raises OSError."""
        allow_descriptors(MOST_NODES)
        server = await asyncio.start_server(
            self._connected, address, port, limit=1 << 16, backlog=BACKLOG
        )
        limit_segments(server)
        self._servers.append(server)
        for lead in filter(None, (self, self.unproved)):
            lead._beating = lead._beating or asyncio.create_task(lead._beat())
        return int(server.sockets[0].getsockname()[1])

    def close(self, why: str = "") -> None:
        """Hear nobody any more; nodes are told."""
        self._send_all(Leave(why))
        self._stop()
        for channel in self._list_channels():
            channel.end()
        if self.unproved is not None:
            self.unproved.close(why)

    def remember(self, words: Iterable[NodeWord], world_size: int) -> None:
        """Know these nodes, of which the lead before had heard: each is gone until it joins."""
        for word in words:
            join = Join(word.node, word.host, "", word.ranks, world_size)
            heard = time.monotonic() - word.age
            peer = self._peers[word.node] = Peer(join, None, heard, word.address, word.last_word)
            peer.is_missed = True
            self._owners |= dict.fromkeys(join.ranks, peer)

    def abandon(self) -> None:
        """Hear nobody any more, because another one leads: nodes look for that one."""
        self._stop()
        for channel in self._list_channels():
            channel.close()
        if self.unproved is not None:
            self.unproved.abandon()

    def _stop(self) -> None:
        for task in (self._beating, self._inquiring):
            if task is not None:
                task.cancel()
        for server in self._servers:
            server.close()
        for channel in self._unknown:
            channel.close()

    def _list_channels(self) -> list[Channel]:
        return [peer.channel for peer in self._peers.values() if peer.channel is not None]

    @property
    def places(self) -> list[Address]:
        """Where it listens."""
        names = [one.getsockname() for server in self._servers for one in server.sockets]
        return [(str(name[0]), int(name[1])) for name in names]

    # ---- connections -----------------------------------------------------------------------------

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        channel, name = Channel(reader, writer), _address_of(writer)
        set_options(writer)
        self._make_room()
        self._unknown[channel] = None
        try:
            await channel.welcome(self._credentials)
            first = decode(await channel.read(LEASE), FROM_NODE)
            if not isinstance(first, Join):
                raise Refused("it did not say who it is")
        except Refused as error:
            self._refuse(name, error)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass
        else:
            lead = self if channel.is_trusted else self.unproved or self
            await lead._serve(first, channel, name, self._unknown)
        finally:
            self._unknown.pop(channel, None)
            channel.close()

    async def _serve(
        self, first: Join, channel: Channel, name: str, unknown: dict[Channel, None]
    ) -> None:
        """Hear a node, which is at the address `name`, until it is gone; none of the `unknown` any
        more once it is taken in.
        """
        peer: Peer | None = None
        try:
            peer = self._take_in(first, channel, name)
            unknown.pop(channel, None)
            name = peer.name
            while True:
                await self._hear(peer, await channel.read(2 * peer.lease))
        except Refused as error:
            self._refuse(name, error)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass
        finally:
            if peer is not None and peer.channel is channel:
                peer.channel = None
                self._reports.end(peer.join.node)
                self._changed.set()
                self._move_barrier()

    def _make_room(self) -> None:
        while len(self._unknown) >= MOST_UNKNOWN:
            oldest = next(iter(self._unknown))
            del self._unknown[oldest]
            oldest.close()

    def _refuse(self, name: str, error: Refused) -> None:
        self._tell(f"{name} is not heard on the link between nodes: {error}")

    def _tell(self, sentence: str) -> None:
        sentence = join_lines(sentence)  # names come from elsewhere
        if sentence not in self._told and len(self._told) < _MOST_SAID:
            self._told.add(sentence)
            self._say(sentence)

    def _take_in(self, join: Join, channel: Channel, address: str) -> Peer:
        """Return the node that says who it is, and is at that address. Raises Refused if it cannot
        be.
        """
        now, before = time.monotonic(), self._peers.get(join.node)
        if why_not := self.why_not(join):
            raise Refused(why_not)
        if before is not None and before.join.process != join.process and before.is_heard(now):
            raise Refused(f"node {join.node} is there already, on {before.name}")
        most = MOST_NODES if self.orders else join.world_size
        if before is None and len(self._peers) >= most:
            raise Refused(f"there are {most} nodes already")
        others = {r: one for r in join.ranks if (one := self._owners.get(r)) is not None}
        doubles = {r for r, one in others.items() if one is not before and one.is_heard(now)}
        if before is not None and before.join.process == join.process:
            if before.channel is not None:
                before.channel.close()
            if before.is_missed:
                self._tell(f"{before.name} is heard again")
            peer = before
            peer.join, peer.channel, peer.heard, peer.address = join, channel, now, address
            peer.left, peer.is_missed = "", False
            self._reports.forget(join.node)
        else:
            peer = self._peers[join.node] = Peer(join, channel, now, address)
            if len(self._peers) <= _FEW_NODES:
                self._send_all(Beat(now, self._list_nodes(now, self._peers)))
        for rank in before.join.ranks if before is not None else ():
            if self._owners.get(rank) in (before, peer):
                del self._owners[rank]
        self._owners |= dict.fromkeys(set(join.ranks) - doubles, peer)
        if doubles:
            first = others[min(doubles)].name
            are = "is" if len(doubles) == 1 else "are"
            self._tell(f"{format_ranks(sorted(doubles))} of {peer.name} {are} on {first} already")
        self._changed.set()
        self._say_if_all_are_there(now)
        self._barriers.forget(join.node)
        self._move_barrier()
        for what in self._done:
            self._send(peer, Done(what))
        return peer

    @property
    def are_all_there(self) -> bool:
        """Return whether the nodes of all ranks have joined, whether heard still or not."""
        first = next(iter(self._peers.values()), None)
        return first is not None and len(self._owners) >= first.join.world_size

    def list_rows(self) -> list[tuple[str, float, tuple[TableRow, ...]]]:
        """Return what the nodes that are heard have for a table: host, when (monotonic), rows."""
        now = time.monotonic()
        told = (p for p in self._peers.values() if p.rows and p.is_heard(now))
        return [(peer.name, peer.rows_at, peer.rows) for peer in told]

    def _say_if_all_are_there(self, now: float) -> None:
        """Say once that all ranks of the job are heard of."""
        if not self.are_all_there or not self.orders:
            return
        peers = [peer for peer in self._peers.values() if peer.is_heard(now)]
        ranks = {rank for peer in peers for rank in peer.join.ranks}
        if len(peers) > 1 and 0 < len(ranks) == peers[0].join.world_size:
            self._tell(f"{len(peers)} nodes are joined: one verdict on all {len(ranks)} ranks")

    # ---- what is heard ---------------------------------------------------------------------------

    async def _hear(self, peer: Peer, message: Message) -> None:
        """Take in a message, parts of reports one by one. Raises Refused if it says what cannot be,
        or speaks of ranks that are not that node's.
        """
        peer.heard = time.monotonic()
        if message["t"] not in PARTS_OF_REPORTS:
            self._take(peer, decode(message, FROM_NODE))
            return
        peer.is_read = True
        try:
            async with self._turn:
                self._take(peer, decode(message, FROM_NODE))
                await asyncio.sleep(0)  # beats are sent, and words of others are heard
        finally:
            peer.is_read, peer.heard = False, time.monotonic()

    def _take(self, peer: Peer, said: Said | None) -> None:
        if said is None:
            return
        foreign = [rank for rank in list_ranks(said) if not _is_its_own(rank, peer.join)]
        if foreign:
            raise Refused(f"it speaks of rank {foreign[0]}, which is not its own")
        if isinstance(said, Digest):
            peer.word = describe_rank_words(said.ranks)
            stills = [one.still for one in said.ranks if one.state in ("runs", "held")]
            peer.moved_at = time.monotonic() - min(stills, default=float("inf"))
        elif isinstance(said, TableRows):
            peer.rows, peer.rows_at = said.rows, time.monotonic()
        elif isinstance(said, Echo):
            peer.note_clock(said)
        elif isinstance(said, AtBarrier):
            if self._barriers.note(peer.join.node, said):
                self._move_barrier()
        elif isinstance(said, Done):
            if said.what not in self._done and len(self._done) < _MOST_DONE:
                self._done.append(said.what)
                self._send_all(said)
        elif isinstance(said, (Report, RankLooks, LookDetails)):
            self._reports.hear(peer.join.node, said)
        elif isinstance(said, Leave):
            self._reports.end(peer.join.node)
            peer.left = said.why

    def _take_report(self, node: str, report: Report, told: ToldRanks) -> None:
        """A report of which all has come is an answer; one that asks begins an inquiry."""
        peer = self._peers[node]
        answer = peer.take_answer(report, told)
        self._changed.set()
        if not self.orders or (self._inquiring is not None and not self._inquiring.done()):
            return
        if report.asks:
            self._inquiring = asyncio.create_task(self._inquire(peer))
        elif report.has_ended_well and self._have_all_ended_well():
            self._inquiring = asyncio.create_task(self._conclude(answer))

    def _move_barrier(self) -> None:
        """Tell all nodes which checkpoint each of them has reached, once that has changed."""
        now = time.monotonic()
        if not self.orders:
            return
        is_whole = self.are_all_there and all(p.is_heard(now) for p in self._peers.values())
        before = self._barriers.opened
        if self._barriers.move(self._peers if is_whole else ()):
            self._send_all(Barriers(self._barriers.opened))
            if self._barriers.opened > before >= 0:  # else each node has said so of its own
                arrived = self._barriers.list_arrived()
                self.on_opened([(self._peers[n].join, at) for n, at in arrived.items()])

    def _give_up(self, node: str, error: Refused) -> None:
        """Hear a node no more whose report cannot be read."""
        peer = self._peers[node]
        self._refuse(peer.name, error)
        if peer.channel is not None:
            peer.channel.close()

    def _have_all_ended_well(self) -> bool:
        answers = (peer.answer for peer in self._peers.values())
        return self.are_all_there and all(one and one.report.has_ended_well for one in answers)

    # ---- inquiries -------------------------------------------------------------------------------

    def count_heard(self) -> int:
        """Return how many nodes are heard."""
        now = time.monotonic()
        return sum(peer.is_heard(now) for peer in self._peers.values())

    def list_told(self) -> list[NodeAnswer]:
        """Return what each node that is heard has told last, where none of its ranks has moved
        since then.
        """
        now = time.monotonic()
        peers = (one for one in self._peers.values() if one.is_heard(now))
        return [one.answer for one in peers if one.answer and one.answer.at > one.moved_at]

    async def read_told(self) -> list[NodeAnswer]:
        """Return the same, with the facts of their ranks."""
        answered = {one.join.node: one for one in self.list_told()}
        await self._read_answers(answered)
        return [*answered.values()]

    async def _conclude(self, last: NodeAnswer) -> None:
        """Tell all that are there how the job has ended, for all ranks of all nodes have."""
        answers = [one for peer in self._peers.values() if (one := peer.answer) is not None]
        await self._send_judged(0, answers, [], last)

    async def _inquire(self, asker: Peer) -> None:
        """Have all look, and all told what came of it."""
        self._inquiry += 1
        self._reports.begin_inquiry()
        number, began = self._inquiry, time.monotonic()
        assert asker.answer is not None
        answered, asked = {asker.join.node: asker.answer}, {asker.join.node}
        waited, until = list[Peer](), began + ANSWER_LIMIT
        while time.monotonic() < until:
            self._changed.clear()
            if came := self._ask_anew(number, asked):
                until = min(time.monotonic() + ANSWER_LIMIT, began + _LAST_REPORT)
            waited = [p for p in waited + came if not self._take_answer(p, number, began, answered)]
            if not waited:
                break
            until = max(until, min(self._reports.heard + _REPORT_PAUSE, began + _LAST_REPORT))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), BEAT_EVERY / 4)
            await asyncio.sleep(_ANSWERS_EVERY * min(1.0, len(waited) / _MANY_NODES))
        for peer in self._peers.values():
            if peer.left and peer.answer is not None:  # what it said as it ended still counts
                answered.setdefault(peer.join.node, peer.answer)
        await self._read_answers(answered)
        left = ((n, p) for n, p in self._peers.items() if n not in answered)
        unseen = [p.describe_unseen() for n, p in left if n in asked or not p.is_heard(began)]
        await self._send_judged(number, [*answered.values()], unseen, asker.answer)

    async def _send_judged(
        self,
        number: int,
        answers: Sequence[NodeAnswer],
        unseen: Sequence[Unseen],
        asker: NodeAnswer,
    ) -> None:
        try:
            judged = await self._judge(answers, unseen, asker)
        except Exception as error:  # each node judges for itself then
            self._tell(f"The lead could not judge all nodes as one: {error!r}")
            judged = Judged(number, failed=True)
        self._send_all(replace(judged, inquiry=number, lead=self._host))

    def _ask_anew(self, number: int, asked: set[str]) -> list[Peer]:
        """Ask the nodes that are heard and were not asked: one that comes meanwhile is not lost."""
        now = time.monotonic()
        found = [p for n, p in self._peers.items() if n not in asked and p.is_heard(now)]
        for peer in found:
            asked.add(peer.join.node)
            self._send(peer, LookNow(number))
        return found

    async def _read_answers(self, answered: dict[str, NodeAnswer]) -> None:
        """Give each answer its facts; leave out those that cannot be read. Beats go on meanwhile:
        of 10,000 ranks that are all different it takes ten seconds.
        """
        for node, answer in [*answered.items()]:
            try:
                answer.facts = answer.told.put_together()
            except Refused as error:
                del answered[node]
                self._give_up(node, error)
            await asyncio.sleep(0)
        whole = self._reports.find_told({r.rank for one in answered.values() for r in one.facts})
        for answer in answered.values():
            kinds: dict[RankId, str] = {one.rank: one.kind for one in answer.told.alike}
            answer.facts += tuple(
                replace(facts, same_looks_as=whole.get(kinds[facts.rank]))
                for facts in answer.report.record.ranks
                if facts.rank in kinds
            )

    def _take_answer(
        self, peer: Peer, number: int, began: float, answered: dict[str, NodeAnswer]
    ) -> bool:
        """Return whether a node has answered this inquiry, or is not waited for any more. One that
        asks itself at the same time has answered, and so has one whose ranks have all ended.
        """
        answer = peer.answer
        asks = answer is not None and answer.report.asks and answer.at > began - BEAT_EVERY
        is_over = answer is not None and answer.report.has_ended_well
        if answer is not None and (answer.report.inquiry == number or asks or is_over):
            answered[peer.join.node] = answer
        return peer.join.node in answered or not peer.is_heard(time.monotonic())

    # ---- beats -----------------------------------------------------------------------------------

    async def _beat(self) -> None:
        count = 0
        while True:
            now, every = time.monotonic(), max(BEAT_EVERY, len(self._peers) / _BEATS_IN_A_SECOND)
            told = self._list_nodes(now, self._choose_nodes(count))
            behind = self._barriers.list_behind({n: p.name for n, p in self._peers.items()})
            self._send_all(Beat(now, told, every, behind, self.has_table))
            for peer in [*self._peers.values()]:
                peer.lease = lease_of(every)
                if not (peer.left or peer.is_missed or peer.is_heard(now)):
                    peer.is_missed = True
                    word = f" (its last word: {peer.word})" if peer.word else ""
                    self._tell(f"{peer.name} is not heard any more{word}")
                    self._changed.set()
                    self._move_barrier()
            count += 1
            await asyncio.sleep(every)

    def _choose_nodes(self, count: int) -> list[str]:
        """Return the nodes of which the beat with this number tells."""
        names = [*self._peers]
        beats = max(_ROSTER_BEATS, len(names) // _WORDS_OF_BEAT)
        return names[count % beats :: beats]

    def _list_nodes(self, now: float, names: Iterable[str]) -> tuple[NodeWord, ...]:
        return tuple(
            NodeWord(
                *(p.join.node, p.join.host, p.join.ranks, p.word),
                *(max(0.0, now - p.heard), p.address),
            )
            for p in map(self._peers.__getitem__, names)
        )

    def _send(self, peer: Peer, said: Said) -> None:
        if peer.channel is not None:
            with contextlib.suppress(OSError, ValueError):
                peer.channel.send(encode(said))

    def _send_all(self, said: Said) -> None:
        """Send the same to all nodes that are there; to nobody what is too large."""
        with contextlib.suppress(ValueError):
            body = make_body(encode(said))
            for channel in self._list_channels():
                with contextlib.suppress(OSError):
                    channel.send_body(body)


def _is_its_own(rank: object, join: Join) -> bool:
    return not isinstance(rank, int) or rank in join.ranks


def _address_of(writer: asyncio.StreamWriter) -> str:
    name = writer.get_extra_info("peername")
    return str(name[0]) if isinstance(name, tuple) and name else "somebody"
