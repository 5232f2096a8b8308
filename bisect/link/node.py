"""A node's end of the link: it finds the lead, says where its ranks are, looks when it is asked to,
and asks for a verdict once its own clock has run out.

While the lead is heard (its lease) the node judges nothing by itself. Whatever fails here, the node
is on its own again, as it would be without a link.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..base.json_codec import to_json
from ..base.rank_facts import RankFacts
from .channel import (
    LARGEST,
    MOST,
    MOST_UNPROVED,
    Address,
    Channel,
    Credentials,
    LeadsElsewhere,
    Refused,
    open_channel,
)
from .look_summary import LookSummary
from .messages import (
    FROM_LEAD,
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
    RankKind,
    RankLooks,
    Report,
    Said,
    TableRow,
    TableRows,
    WantDetails,
    decode,
    encode,
)
from .peers import lease_of

DIGEST_EVERY = 2.0  # seconds
DIGEST_PAUSE = 0.25  # seconds between two that tell of a change
JUDGED_LIMIT = 60.0  # seconds for the lead to have all looked at and judged
_CONNECT_LIMIT = 2.0
_LAST_LIMIT = 1.0  # seconds for the last message to leave
_AGAIN_FIRST, _AGAIN_LAST = 0.5, 5.0  # seconds between two tries to find the lead
_SOON = 20.0  # seconds for which it is tried often
_MOST_OF_MESSAGE = LARGEST - 4096  # bytes: masks may be longer than what they hide
MOST_WHOLE = 64  # ranks of a job that are all told of
_SHARE_OF_LOOKS = 3 / 4  # that one report may have of what a connection may send

# Where the lead may be, and what to prove to it; asked anew for each try.
Find = Callable[[], Awaitable[tuple[Sequence[Address], Credentials]]]


class NodeLink:
    """One node's connection to the lead, made anew as often as it is lost."""

    def __init__(
        self, join: Join, find: Find, digest: Callable[[], Digest], wake: Callable[[], None]
    ) -> None:
        """`digest` says where the ranks are; `wake` is called when the lead asks for something."""
        self._join, self._find, self._digest, self._wake = join, find, digest, wake
        self._channel: Channel | None = None
        self._heard, self._every = float("-inf"), 1.0  # seconds from one beat to the next
        self._news = asyncio.Event()
        self._orders = False
        self.judged: Judged | None = None  # what the lead said last, and nobody has taken
        self.asked = 0  # the inquiry for which a look is wanted, 0 for none
        self.others: dict[str, tuple[float, NodeWord]] = {}  # by node: when it was heard last
        self.refused = ""  # why the last one that was found did not take us
        self.was_led = False
        self._at: AtBarrier | None = None  # None: this node has no barriers
        self._opened = -1  # the last barrier that all nodes have reached, as the lead says
        self.behind: tuple[str, ...] = ()  # hosts for which ranks are held in a barrier
        self.done: set[str] = set()  # what rank 0 is through with, for which ranks may wait
        self.lead_has_table = False  # the lead shows the ranks of all nodes
        self.list_rows: Callable[[], tuple[TableRow, ...]] = lambda: ()  # what it shows of these
        self.on_barriers: Callable[[], None] | None = None  # whenever one of these changes
        self._told: list[LookSummary] = []  # of the last report, a rank each

    @property
    def node(self) -> str:
        """Return the name of this node in the job."""
        return self._join.node

    @property
    def world_size(self) -> int:
        """Return how many ranks the job has."""
        return self._join.world_size

    @property
    def heard(self) -> float:
        """Return when the lead was heard last, monotonic; -inf if it never was."""
        return self._heard

    @property
    def lease(self) -> float:
        """Return in how many seconds without a word the lead is lost."""
        return lease_of(self._every)

    @property
    def is_led(self) -> bool:
        """Return whether the lead holds its lease, and may order anything: both have a token."""
        return self._orders and self.is_connected

    @property
    def is_connected(self) -> bool:
        """Return whether the lead is heard."""
        return self._channel is not None and time.monotonic() - self._heard < self.lease

    @property
    def ends(self) -> tuple[Address, Address] | None:
        """Both ends of the connection by which this node is led, its own first; None if it is not
        led.
        """
        return self._channel.ends if self._channel is not None and self.is_led else None

    @property
    def lead_host(self) -> str:
        """Return the name of the host that leads, "" where that is not known, or nobody does."""
        place = self.ends[1][0] if self.ends is not None else None
        return next((word.host for _, word in self.others.values() if word.address == place), "")

    @property
    def knows_all_ranks(self) -> bool:
        """Return whether the lead has told of nodes that have all ranks of the job."""
        known = {rank for _, word in self.others.values() for rank in word.ranks}
        return len(known) >= self.world_size

    @property
    def spans_barriers(self) -> bool:
        """Return whether barriers are those of all nodes."""
        return self.is_led and self._opened >= 0

    def pass_barrier(self, at: AtBarrier) -> bool:
        """Tell that all ranks here have reached a checkpoint. Return whether they may go on: no
        node is behind, or none is waited for.
        """
        if self._at is None or at.number != self._at.number:
            self._at = at
            with contextlib.suppress(OSError, ValueError):
                self._send(at)
        return not self.spans_barriers or at.number <= self._opened

    def tell_done(self, what: str) -> None:
        """Tell that rank 0, which is here, is through with what others wait for."""
        self.done.add(what)
        with contextlib.suppress(OSError, ValueError):
            self._send(Done(what))

    def list_others(self) -> list[NodeWord]:
        """Return what was heard last of each node, this one too, with its age by now."""
        now = time.monotonic()
        return [replace(word, age=now - heard) for heard, word in self.others.values()]

    @property
    def question(self) -> int:
        """Return the inquiry for which the lead wants a look, or has a verdict already that nobody
        here has taken; 0 for none.
        """
        if not self.is_led:
            return 0
        judged = self.judged
        has_verdict = judged is not None and judged.verdict is not None
        return self.asked or (judged.inquiry if judged is not None and has_verdict else 0)

    async def run(self) -> None:
        """Find the lead and talk to it, until this is cancelled."""
        soon = time.monotonic() + _SOON
        while True:
            if await self._talk_once():
                soon = time.monotonic() + _SOON
            is_soon = time.monotonic() < soon
            await asyncio.sleep(_AGAIN_FIRST if is_soon else _AGAIN_LAST)

    async def leave(self, why: str) -> None:
        """Say why we watch no longer, and let go."""
        if self._channel is not None:
            self._send(Leave(why))
            await self._channel.leave(_LAST_LIMIT)
            self._channel = None

    def look_again(self) -> None:
        """Let go of the lead that is heard, and look for one anew."""
        if self._channel is not None:
            self._channel.close()

    async def wait_until_led(self, limit: float) -> None:
        """Wait for the lead, for `limit` seconds at the most."""
        until = time.monotonic() + limit
        while not self.is_led and time.monotonic() < until:
            await asyncio.sleep(0.1)

    def report(self, report: Report, ranks: Sequence[RankFacts]) -> None:
        """Tell the lead what we know. Raises ConnectionError."""
        self._told = fitting = [*_fit(ranks, MOST if self._orders else MOST_UNPROVED)]
        is_asked = bool(report.asks or report.inquiry)  # else it ends, and may be gone before it is
        alike = list_alike(report, fitting) if is_asked and self.world_size > MOST_WHOLE else {}
        kinds = tuple(RankKind(rank, kind) for rank, kind in alike.items())
        self._send(replace(report, looks=len(fitting) - len(alike), alike=kinds))
        self._tell_looks(one for one in fitting if one.ranks[0].rank not in alike)
        if not is_asked:
            stacks = dict.fromkeys(name for one in fitting for name in one.stacks)
            self._give_details(WantDetails(tuple(stacks), ()))

    def answer(self, inquiry: int, tell: Callable[[], None]) -> bool:
        """Have `tell` report what we know, unless the lead has judged this inquiry already; return
        whether the lead is heard. `inquiry` is 0 where nobody asked: what was judged before is of
        another moment then.
        """
        self.asked = 0
        if not inquiry:
            self.judged = None
        try:
            if self.judged is None:
                tell()
        except (ConnectionError, ValueError):
            return False
        return True

    async def wait_for_judgement(self, limit: float = JUDGED_LIMIT) -> Judged | None:
        """Return what the lead says, and take it; None if it says nothing within `limit` seconds,
        or could not judge, and we are on our own.
        """
        until = time.monotonic() + limit
        while self.judged is None and self.is_connected and time.monotonic() < until:
            self._news.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), 0.25)
        judged, self.judged = self.judged, None
        return None if judged is None or judged.failed else judged

    # ---- the connection --------------------------------------------------------------------------

    async def _talk_once(self) -> bool:
        """Return whether a lead was there, once it is gone."""
        channel, refused = await open_lead(*await self._find())
        self.refused = refused or self.refused
        if channel is None:
            return False
        self._channel, self._heard = channel, time.monotonic()
        self._orders = channel.is_trusted
        try:
            await self._talk(channel)
        except Refused as error:
            self.refused = str(error)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass
        finally:
            self._channel = None
            channel.close()
            self._move_barriers(-1)
        return True

    async def _talk(self, channel: Channel) -> None:
        channel.send(encode(self._join))
        if self._at is not None:
            channel.send(encode(self._at))
        for what in self.done:
            channel.send(encode(Done(what)))
        self.was_led = self.was_led or self._orders
        telling = asyncio.create_task(self._tell_digests(channel))
        try:
            while True:
                said = decode(await channel.read(self.lease), FROM_LEAD)
                self._heard = time.monotonic()
                if said is not None:
                    self._hear(said)
        finally:
            telling.cancel()

    def _hear(self, said: Said) -> None:
        if isinstance(said, Beat):
            self._every = max(1.0, said.every)
            self._send(Echo(said.at, time.monotonic()))
        if not self._orders:  # nothing proves that it is of this job
            return
        if isinstance(said, Beat):
            self.behind, self.lead_has_table = said.behind, said.has_table
            for word in said.nodes or ():
                self.others[word.node] = time.monotonic() - word.age, word
        elif isinstance(said, Barriers):
            self._move_barriers(said.opened)
        elif isinstance(said, Done):
            self.done.add(said.what)
            self._move_barriers(self._opened)
        elif isinstance(said, LookNow):
            self.asked = said.inquiry
            self._wake()
        elif isinstance(said, WantDetails):
            self._give_details(said)
        elif isinstance(said, Leave):  # it is not lost: it has nothing more to say
            self.was_led, self.others = False, {}
        elif isinstance(said, Judged):
            self.asked, self.judged = 0, said
            self._news.set()
            self._wake()

    def _move_barriers(self, opened: int) -> None:
        self._opened = opened
        if self.on_barriers is not None:
            self.on_barriers()

    def _tell_looks(self, told: Iterable[LookSummary]) -> None:
        for one in told:
            self._send(RankLooks(one.ranks[0], one.looks[0], one.parts))

    def _give_details(self, wanted: WantDetails) -> None:
        """Tell what is wanted of the last report, in messages that are not too long."""
        if wanted.ranks:
            self._tell_looks(one for one in self._told if one.ranks[0].rank in wanted.ranks)
            return
        for one in self._told:
            stacks, texts = one.give_details(wanted.stacks, wanted.pids)
            parts = [LookDetails(stacks=part) for part in _split(stacks)]
            for said in (*parts, *(LookDetails(texts=part) for part in _split(texts))):
                with contextlib.suppress(ValueError):  # by masks that are longer than that
                    self._send(said)
        self._send(LookDetails(is_last=True))

    async def _tell_digests(self, channel: Channel) -> None:
        last, told_at = None, 0.0
        while True:
            digest, now = self._digest(), time.monotonic()
            places = [(w.rank, w.state, w.step, w.phase, w.waits) for w in digest.ranks]
            if places != last or now - told_at >= DIGEST_EVERY * self._every:
                last, told_at = places, now
                channel.send(encode(digest))
                if self.lead_has_table:
                    channel.send(encode(TableRows(self.list_rows())))
            await asyncio.sleep(DIGEST_PAUSE)

    def _send(self, said: Said) -> None:
        if self._channel is not None:
            self._channel.send(encode(said))


async def open_lead(
    places: Sequence[Address], credentials: Credentials, follows: bool = True
) -> tuple[Channel | None, str]:
    """Return a connection to the lead at the first of these places where one has proved itself, and
    why another one did not take us. All hosts are tried at once, the ports of one in turn.
    `follows`: where a node of the job says that another one leads, that one is asked then.
    """
    hosts: dict[str, list[int]] = {}
    for host, port in places:
        hosts.setdefault(host, []).append(port)
    told: list[Address] = []
    tries = [asyncio.create_task(_open_at(host, hosts[host], credentials, told)) for host in hosts]
    found, refused = None, ""
    try:
        for one in tries:
            found, why_not = await one
            refused = why_not or refused
            if found is not None:
                break
    finally:
        for one in tries:
            one.cancel()
        for ended in await asyncio.gather(*tries, return_exceptions=True):
            if isinstance(ended, tuple) and ended[0] not in (None, found):
                ended[0].close()
    if found is None and follows and told and told[0] not in places:
        return await open_lead(told[:1], credentials, follows=False)
    return found, refused


async def _open_at(
    host: str, ports: Sequence[int], credentials: Credentials, told: list[Address]
) -> tuple[Channel | None, str]:
    """As open_lead(); `told` gets where another one leads."""
    refused = ""
    for port in ports:
        try:
            channel = await open_channel(host, port, _CONNECT_LIMIT)
        except TimeoutError:
            break  # the host does not answer, at any port
        except OSError:
            continue
        is_taken = False
        try:
            await channel.greet(credentials)
            is_taken = True
            return channel, refused
        except LeadsElsewhere as error:
            told.append(error.place)
        except Refused as error:
            refused = str(error)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            if not is_taken:
                channel.close()
    return None, refused


def _fit(ranks: Sequence[RankFacts], most: int) -> list[LookSummary]:
    """Return the ranks with as many of their looks as one message, and all together, may hold, on a
    connection that may send `most` bytes.
    """
    fitting, left = [], int(most * _SHARE_OF_LOOKS)
    for facts in ranks:
        for smaller in _ever_smaller(facts):
            one = LookSummary((smaller,))
            size = _size_of(to_json(RankLooks(one.ranks[0], one.looks[0], one.parts)))
            if size <= min(left, _MOST_OF_MESSAGE):
                fitting.append(one)
                left -= size
                break
    return fitting


def list_alike(report: Report, told: Sequence[LookSummary]) -> dict[int, str]:
    """Return the kinds of the ranks of which there may be many: they wait for others."""
    waiting = report.verdict.ranks.waiting
    ranks = ((one.ranks[0], one) for one in told if one.looks[0][0])
    return {
        facts.rank: one.name_kind()
        for facts, one in ranks
        if isinstance(facts.rank, int) and facts.rank in waiting and not (facts.moved or facts.left)
    }


def _split(told: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield parts of this, each of which a message may hold; without what none may hold."""
    part: dict[str, Any] = {}
    left = _MOST_OF_MESSAGE
    for name, one in told.items():
        size = _size_of(one) + len(name) + 8
        if size > left and part:
            yield part
            part, left = {}, _MOST_OF_MESSAGE
        if size <= left:
            part[name] = one
            left -= size
    if part:
        yield part


def _size_of(value: Any) -> int:
    return len(json.dumps(value, separators=(",", ":")))


def _ever_smaller(facts: RankFacts) -> list[RankFacts]:
    """Return a rank with all looks, and then with ever fewer."""
    last = replace(facts, looks=facts.looks[-2:], children=tuple(k[-2:] for k in facts.children))
    return [facts, last, replace(last, children=()), replace(last, children=(), collectives=())]
