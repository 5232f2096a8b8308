"""The lead and nodes over real sockets: what nodes say becomes one answer, and whatever a stranger
sends costs that connection alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hangbisect.base.json_codec import to_json
from hangbisect.base.node_record import NodeClock, make_node_record
from hangbisect.base.rank_facts import RankFacts
from hangbisect.diagnosis.verdict import judge_job
from hangbisect.link import channel as channels
from hangbisect.link.channel import LARGEST, Channel, Credentials, Refused, open_channel, pack
from hangbisect.link.lead import MOST_UNKNOWN, Lead
from hangbisect.link.messages import (
    Beat,
    Digest,
    Done,
    Join,
    Judged,
    LookNow,
    NodeWord,
    RankWord,
    Report,
    TableRow,
    TableRows,
    decode,
    encode,
)
from hangbisect.link.node import NodeLink
from hangbisect.link.peers import LEASE, NodeAnswer, Unseen

from ..diagnosis.made_up import SLEEP, job, rank

OURS = Credentials("job", b"k" * 16)
DEADLINE = 60.0


class Star:
    """A lead, and what it was told to judge and to say."""

    def __init__(self, credentials: Credentials = OURS) -> None:
        self.said: list[str] = []
        self.judged: list[tuple[list[str], list[tuple[str, str]]]] = []
        self.lead = Lead(credentials, "n1", self._judge, self.said.append)
        self.port = 0
        self.answers: dict[str, NodeAnswer] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def _judge(
        self, answers: Sequence[NodeAnswer], unseen: Sequence[Unseen], asker: NodeAnswer
    ) -> Judged:
        told = [(one.join.host, one.why) for one in unseen]
        self.judged.append((sorted(one.join.host for one in answers), told))
        self.answers = {one.join.host: one for one in answers}
        return Judged(0, asker.report.verdict, proof="seen")

    def node(
        self,
        number: int,
        ranks: Sequence[int] = (),
        tells: tuple[Report, Sequence[RankFacts]] | None = None,
        **more: Any,
    ) -> NodeLink:
        """Start a node's end of the link, which looks as soon as it is asked to. `tells`: what it
        reports then.
        """
        join = replace(join_of(number, ranks), **more)

        async def find() -> tuple[list[tuple[str, int]], Credentials]:
            return [("127.0.0.1", self.port)], OURS

        def wake() -> None:
            if link.asked:
                report, facts = tells or (report_of(join), [])
                with contextlib.suppress(ConnectionError):
                    link.report(replace(report, inquiry=link.asked), facts)
                link.asked = 0

        words = tuple(RankWord(one, "runs", "4 Tokenizer loaded") for one in join.ranks)
        link = NodeLink(join, find, lambda: Digest(words), wake)
        self._tasks.append(asyncio.create_task(link.run()))
        return link

    async def open(self, credentials: Credentials = OURS) -> Channel:
        """Connect, and prove who we are."""
        found = await open_channel("127.0.0.1", self.port, 5.0)
        await found.greet(credentials)
        return found

    def clock_errors(self) -> list[float]:
        """Return how far each node's clock may be off, as the lead knows it."""
        return [one.error for one in self.lead._peers.values()]

    def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        self.lead.close()


@contextlib.asynccontextmanager
async def star(credentials: Credentials = OURS) -> AsyncIterator[Star]:
    made = Star(credentials)
    made.port = await made.lead.listen("127.0.0.1", 0)
    try:
        yield made
    finally:
        made.end()


def join_of(number: int, ranks: Sequence[int] = ()) -> Join:
    own = tuple(ranks or (number,))
    return Join(str(number), f"n{number + 1}", f"process {number}", own, 4)


def report_of(join: Join, **more: Any) -> Report:
    facts = job("still", 4)
    verdict = judge_job(facts, [rank(0, SLEEP, SLEEP)])
    told = replace(facts, local_ranks=join.ranks)
    ranks = [rank(number, host=join.host) for number in join.ranks]
    record = make_node_record(join.host, told, ranks, NodeClock(time.monotonic(), time.time()))
    return Report(**{"inquiry": 0, "record": record, "verdict": verdict, **more}, **REST)


REST: dict[str, Any] = {"ended": "still", "looks": 0}


async def until(done: Callable[[], bool], what: str = "") -> None:
    end = time.monotonic() + DEADLINE
    while not done():
        assert time.monotonic() < end, what
        await asyncio.sleep(0.02)


def run(test: Coroutine[Any, Any, Any]) -> None:
    asyncio.run(asyncio.wait_for(test, 2 * DEADLINE))


# ---- one answer ----------------------------------------------------------------------------------


def test_all_look_when_the_clock_of_one_runs_out_and_all_hear_one_answer() -> None:
    async def test() -> None:
        async with star() as made:
            nodes = [made.node(number) for number in range(3)]
            await until(lambda: all(one.is_led for one in nodes))
            nodes[1].report(report_of(join_of(1), asks=True), [rank(1, SLEEP, SLEEP)])
            heard = [await one.wait_for_judgement() for one in nodes]
            assert all(one is not None and one.verdict and one.lead == "n1" for one in heard)
            assert made.judged == [(["n1", "n2", "n3"], [])]
            assert made.said == []

    run(test())


def test_once_all_nodes_have_ended_well_all_hear_one_answer_and_one_that_has_left_counts() -> None:
    async def test() -> None:
        async with star() as made:
            nodes = [made.node(number) for number in range(4)]
            await until(lambda: all(one.is_led for one in nodes))
            well = {"verdict": replace(report_of(join_of(0)).verdict, outcome="ok")}
            for number in (3, 1, 0):
                nodes[number].report(report_of(join_of(number), **well), [rank(number)])
            await nodes[3].leave("its ranks have ended")
            await until(lambda: made.lead._peers["3"].channel is None)
            assert made.judged == []  # the ranks of one still run
            nodes[2].report(report_of(join_of(2), **well), [rank(2)])
            heard = [await one.wait_for_judgement() for one in nodes[:3]]
            assert all(one is not None and one.lead == "n1" for one in heard)
            assert made.judged == [(["n1", "n2", "n3", "n4"], [])]

    run(test())


def test_a_node_that_has_ended_well_is_not_waited_for_where_another_one_asks() -> None:
    async def test() -> None:
        async with star() as made:
            nodes = [made.node(number) for number in range(2)]
            await until(lambda: all(one.is_led for one in nodes))
            nodes[1]._wake = lambda: None  # it does not look any more
            well = replace(report_of(join_of(1)).verdict, outcome="ok")
            nodes[1].report(report_of(join_of(1), verdict=well), [rank(1)])
            await until(lambda: made.lead._peers["1"].answer is not None)
            nodes[0].report(report_of(join_of(0), asks=True), [rank(0, SLEEP, SLEEP)])
            assert await nodes[0].wait_for_judgement(4.0) is not None
            assert made.judged == [(["n1", "n2"], [])]

    run(test())


def test_rows_of_a_table_are_told_to_a_lead_that_shows_one_and_only_then() -> None:
    async def test() -> None:
        row = TableRow((1,), "works", "4 Tokenizer loaded", 4, since=2.0)
        async with star() as made:
            nodes = [made.node(number) for number in range(2)]
            nodes[1].list_rows = lambda: (row,)
            await until(lambda: all(one.is_led for one in nodes))
            assert not nodes[1].lead_has_table
            assert made.lead.list_rows() == []
            made.lead.has_table = True
            await until(lambda: nodes[1].lead_has_table)
            await until(lambda: bool(made.lead.list_rows()))
            ((host, at, rows),) = made.lead.list_rows()
            assert (host, rows) == ("n2", (row,))
            assert at <= time.monotonic()
            nodes[1].list_rows = lambda: ()  # nothing is watched there any more
            await until(lambda: made.lead.list_rows() == [])

    run(test())


def test_a_row_of_a_rank_of_another_node_is_refused() -> None:
    async def test() -> None:
        async with star() as made:
            channel = await made.open()
            channel.send(encode(join_of(1)))
            channel.send(encode(TableRows((TableRow((0,), "works", "4", 4, since=1.0),))))
            await until(lambda: bool(made.said))
            assert "speaks of rank 0, which is not its own" in made.said[0]
            channel.close()

    run(test())


def test_a_node_that_comes_while_all_are_asked_is_asked_too_and_is_not_lost() -> None:
    async def test() -> None:
        async with star() as made:
            nodes = [made.node(number) for number in range(2)]
            await until(lambda: all(one.is_led for one in nodes))
            looks, nodes[1]._wake = nodes[1]._wake, lambda: None
            nodes[0].report(report_of(join_of(0), asks=True), [])
            await until(lambda: bool(nodes[1].asked))
            late = made.node(2)
            await until(lambda: late.is_led)
            looks()  # this one takes as long as that
            assert await nodes[0].wait_for_judgement() is not None
            assert made.judged == [(["n1", "n2", "n3"], [])]

    run(test())


def test_looks_of_all_ranks_come_whole_to_who_judges() -> None:
    async def test() -> None:
        async with star() as made:
            nodes = [made.node(number) for number in range(2)]
            await until(lambda: all(one.is_led for one in nodes))
            for one in nodes:  # each asks at the same moment: that is its answer
                one._wake = lambda: None
            seen = [rank(0, SLEEP, SLEEP, host="n1"), rank(1, SLEEP, host="n2")]
            nodes[0].report(report_of(join_of(0), asks=True), seen[:1])
            nodes[1].report(report_of(join_of(1), asks=True), seen[1:])
            assert await nodes[0].wait_for_judgement() is not None
            found = [one.facts for _, one in sorted(made.answers.items())]
            assert found == [(seen[0],), (seen[1],)]

    run(test())


def test_a_node_that_is_gone_is_named_with_its_last_word() -> None:
    async def test() -> None:
        async with star() as made:
            nodes = [made.node(number) for number in range(2)]
            silent = await made.open()
            silent.send(encode(join_of(2)))
            silent.send(encode(Digest((RankWord(2, "runs", "7 Model built"),))))
            await until(lambda: all(one.is_led for one in nodes))
            await asyncio.sleep(0.2)
            silent.close()
            await until(lambda: bool(made.said))
            assert made.said == [
                "n3 is not heard any more (its last word: rank 2 at 7 Model built)"
            ]
            nodes[0].report(report_of(join_of(0), asks=True), [])
            await nodes[0].wait_for_judgement()
            assert made.judged == [(["n1", "n2"], [("n3", "it is not heard any more")])]
            await until(lambda: "2" in nodes[0].others)

    run(test())


def test_the_lead_knows_by_how_much_a_clock_is_wrong() -> None:
    """Of a wall clock that is an hour behind: what it says is told on the lead's clock."""

    async def test() -> None:
        async with star() as made:
            nodes = [made.node(number) for number in range(2)]
            await until(lambda: all(one.is_led for one in nodes))
            await until(lambda: [error < 0.5 for error in made.clock_errors()] == [True, True])
            told = report_of(join_of(1), asks=True)
            clock = replace(told.record.clock, wall=told.record.clock.wall - 3600.0)
            told = replace(told, record=replace(told.record, clock=clock))
            nodes[1].report(told, [rank(1, SLEEP, SLEEP)])
            await nodes[1].wait_for_judgement()
            behind = made.answers["n2"]
            assert behind.clock_ahead == pytest.approx(-3600.0, abs=1.0)
            assert made.answers["n1"].clock_ahead == pytest.approx(0.0, abs=1.0)
            assert abs(behind.report.record.clock.wall - time.time()) < DEADLINE

    run(test())


def test_nodes_hear_of_each_other_as_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is cut off soon after that has to know whom it does not see any more."""
    monkeypatch.setattr("hangbisect.link.lead._ROSTER_BEATS", 1_000_000)

    async def test() -> None:
        async with star() as made:
            nodes = [made.node(0)]
            await until(lambda: "0" in nodes[0].others)
            nodes.append(made.node(1))
            await until(lambda: all(set(one.others) == {"0", "1"} for one in nodes))

    run(test())


def test_beats_tell_of_all_nodes_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many nodes at once each beat would be as long as the job is large."""
    monkeypatch.setattr("hangbisect.link.lead._FEW_NODES", 0)
    monkeypatch.setattr("hangbisect.link.lead.BEAT_EVERY", 0.02)

    async def test() -> None:
        async with star() as made:
            nodes = [made.node(number, world_size=40) for number in range(40)]
            heard: list[int] = []
            hear = nodes[0]._hear

            def note(said: Any) -> None:
                heard.append(len(getattr(said, "nodes", None) or ()))
                hear(said)

            nodes[0]._hear = note  # type: ignore[method-assign]
            names = {str(number) for number in range(40)}
            await until(lambda: all(set(one.others) == names for one in nodes))
            assert max(heard) <= 8

    run(test())


def test_a_node_is_on_its_own_once_the_lead_is_silent() -> None:
    async def test() -> None:
        async with star() as made:
            node = made.node(0)
            await until(lambda: node.is_led)
            made.lead.close()
            began = time.monotonic()
            await until(lambda: not node.is_led)
            assert time.monotonic() - began < LEASE + DEADLINE / 2
            assert await node.wait_for_judgement() is None

    run(test())


def test_of_thousands_of_nodes_each_hears_a_beat_less_often_and_waits_longer_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hangbisect.link.lead._BEATS_IN_A_SECOND", 2)

    async def test() -> None:
        async with star() as made:
            nodes = [made.node(number, world_size=4) for number in range(4)]
            await until(lambda: all(one.lease == 2 * LEASE for one in nodes))
            await until(lambda: all(p.lease == 2 * LEASE for p in made.lead._peers.values()))
            began = time.monotonic()
            await asyncio.sleep(0.9 * 2 * LEASE)
            assert all(one.is_led and one.heard > began for one in nodes)
            assert all(p.is_heard(time.monotonic()) for p in made.lead._peers.values())

    run(test())


@pytest.mark.parametrize("every", [0.0, -1.0, 1e9])
def test_a_beat_that_comes_never_is_no_beat(every: float) -> None:
    with pytest.raises(Refused, match="a beat every"):
        decode(encode(Beat(1.0, every=every)), (Beat,))


def test_without_a_token_a_lead_orders_nothing() -> None:
    async def test() -> None:
        async with star(Credentials("job")) as made:
            join = join_of(0)

            async def find() -> tuple[list[tuple[str, int]], Credentials]:
                return [("127.0.0.1", made.port)], Credentials("job")

            link = NodeLink(join, find, lambda: Digest(()), lambda: None)
            task = asyncio.create_task(link.run())
            await until(lambda: link.is_connected)
            assert not link.is_led
            task.cancel()

    run(test())


def test_without_a_token_a_lead_has_what_nodes_tell_by_themselves_as_long_as_it_holds() -> None:
    async def test() -> None:
        bare = Credentials("job")
        async with star(bare) as made:
            states = [RankWord(1, "runs", "4 Tokenizer loaded", still=60.0)]

            async def find() -> tuple[list[tuple[str, int]], Credentials]:
                return [("127.0.0.1", made.port)], bare

            nodes = [
                NodeLink(join_of(0), find, lambda: Digest(()), lambda: None),
                NodeLink(join_of(1), find, lambda: Digest(tuple(states)), lambda: None),
            ]
            tasks = [asyncio.create_task(one.run()) for one in nodes]
            await until(lambda: all(one.is_connected for one in nodes))
            nodes[1].report(report_of(join_of(1)), [rank(1, SLEEP, SLEEP)])
            await until(lambda: bool(made.lead.list_told()))
            (told,) = await made.lead.read_told()
            assert (told.join.host, [one.rank for one in told.facts]) == ("n2", [1])
            # Who asks is not answered: all nodes would have to look.
            nodes[0].report(report_of(join_of(0), asks=True), [])
            await asyncio.sleep(0.5)
            assert made.judged == []
            states[0] = replace(states[0], step="5 Model loaded", still=0.0)  # it goes on
            await until(lambda: [one.join.host for one in made.lead.list_told()] == ["n1"])
            for task in tasks:
                task.cancel()

    run(test())


def test_a_node_without_a_token_is_heard_apart_and_comes_to_none_of_the_others() -> None:
    """It says that it has their ranks, is heard by nobody but its own lead, and is told nothing."""

    async def test() -> None:
        made = Star()
        made.lead.hear_unproved(lambda join: "not it" if join.node == "2" else "")
        made.port = await made.lead.listen("127.0.0.1", 0)
        proved = [made.node(0), made.node(1)]
        await until(lambda: made.lead.count_heard() == 2)

        def join_bare(number: int) -> tuple[NodeLink, asyncio.Task[None]]:
            async def find() -> tuple[list[tuple[str, int]], Credentials]:
                return [("127.0.0.1", made.port)], Credentials("job")

            link = NodeLink(join_of(number), find, lambda: Digest(()), lambda: None)
            return link, asyncio.create_task(link.run())

        (stranger, one), (_, other) = join_bare(1), join_bare(2)
        await until(lambda: stranger.is_connected)
        unproved = made.lead.unproved
        assert unproved is not None
        await until(lambda: unproved.count_heard() == 1)
        assert made.lead.count_heard() == 2
        stranger.report(report_of(join_of(1)), [rank(1, SLEEP, SLEEP)])
        await until(lambda: len(unproved.list_told()) == 1)
        assert made.lead.list_told() == []
        assert made.judged == []
        proved[0].report(report_of(join_of(0), asks=True), [])
        await until(lambda: len(made.judged) == 1)
        assert made.judged[0] == (["n1", "n2"], [])
        assert not stranger.is_led
        assert stranger.others == {}
        await until(lambda: any("not it" in said for said in made.said))
        for task in (one, other):
            task.cancel()
        made.end()
        await until(lambda: not stranger.is_connected)

    run(test())


def test_who_proves_nothing_may_send_less_and_prints_nothing_but_letters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(channels, "MOST_UNPROVED", 1 << 20)

    async def test() -> None:
        made = Star()
        made.lead.hear_unproved(lambda join: "")
        made.port = await made.lead.listen("127.0.0.1", 0)
        stranger = await made.open(Credentials("job"))
        stranger.send(encode(replace(join_of(1), host="n2\x1b[2J")))
        word = RankWord(1, "runs", "x" * 300_000)
        with contextlib.suppress(ConnectionError):
            for _ in range(8):
                stranger.send(encode(Digest((word,))))
                await asyncio.sleep(0.05)
        await until(lambda: any("more than 1 MiB" in said for said in made.said))
        assert all(said.isprintable() for said in made.said)
        stranger.close()
        made.end()

    run(test())


def test_a_lead_whose_token_was_given_hears_nobody_without_it() -> None:
    async def test() -> None:
        async with star() as made:
            found = await open_channel("127.0.0.1", made.port, 5.0)
            with pytest.raises(Refused, match="no token in common: we have none"):
                await found.greet(Credentials("job"))
            found.close()

    run(test())


def test_what_a_lead_says_without_a_token_is_not_believed() -> None:
    async def test() -> None:
        bare = Credentials("job")
        async with star(bare) as made:

            async def find() -> tuple[list[tuple[str, int]], Credentials]:
                return [("127.0.0.1", made.port)], bare

            link = NodeLink(join_of(0), find, lambda: Digest(()), lambda: None)
            task = asyncio.create_task(link.run())
            await until(lambda: link.is_connected)
            made.lead._send_all(LookNow(1))
            made.lead._send_all(Judged(1, report_of(join_of(0)).verdict))
            made.lead._send_all(Done("saving the module"))
            word = NodeWord("1", "n2", (1,), "", 0.0)
            made.lead._send_all(Beat(time.monotonic(), (word,), behind=("n2",), has_table=True))
            await asyncio.sleep(1.5)  # the next beat of the lead's has come by then
            assert (link.asked, link.judged, link.done, link.behind) == (0, None, set(), ())
            assert (link.others, link.lead_has_table, link.was_led) == ({}, False, False)
            assert link.is_connected
            task.cancel()

    run(test())


# ---- what strangers send -------------------------------------------------------------------------


async def raw(made: Star, *pieces: bytes, pause: float = 0.0) -> bytes:
    """Send bytes, and return all that came back until the connection was closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", made.port)
    with contextlib.suppress(OSError):
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(pause)
    try:
        return await reader.read()
    except OSError:
        return b""
    finally:
        writer.close()


async def still_serves(made: Star) -> None:
    """Assert that nodes are heard as before, and judged as they would be."""
    before = len(made.judged)
    node = made.node(3)
    await until(lambda: node.is_led)
    node.report(report_of(join_of(3), asks=True), [])
    judged = await node.wait_for_judgement()
    assert judged is not None
    assert judged.verdict is not None
    assert made.judged[before:] == [(["n4"], [])]


HALF = pack({"t": "node", "v": 1})[:-3]
STRANGERS = {
    "garbage": [bytes(range(256)) * 40],
    "another protocol": [b"GET / HTTP/1.1\r\nHost: n1\r\n\r\n"],
    "too large": [(LARGEST + 1).to_bytes(4, "big")],
    "another version": [pack({"t": "node", "v": 2, "nonce": "00" * 16, "job": "job"})],
    "a wrong token": [
        pack({"t": "node", "v": 1, "nonce": "00" * 16, "job": "job", "proof": "00" * 32})
    ],
    "no number": [b"\0\0\0\x0f" + b'{"t":"a","n":NaN}'],
    "half a message": [HALF],
    "nothing": [],
}


@pytest.mark.parametrize("what", STRANGERS)
def test_a_stranger_costs_its_own_connection_alone(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "GREETING_LIMIT", 0.5)

    async def test() -> None:
        async with star() as made:
            await raw(made, *STRANGERS[what])
            assert len(made.said) <= 1
            assert all(len(one) < 200 and "\n" not in one for one in made.said)
            await still_serves(made)

    run(test())


def test_a_line_without_end_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "GREETING_LIMIT", 0.5)

    async def test() -> None:
        async with star() as made:
            await raw(made, *([b"x" * (1 << 20)] * 2048))
            await still_serves(made)

    run(test())


def test_a_byte_now_and_then_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "GREETING_LIMIT", 0.5)

    async def test() -> None:
        async with star() as made:
            began = time.monotonic()
            await raw(made, *(HALF[i : i + 1] for i in range(20)), pause=0.2)
            assert time.monotonic() - began < DEADLINE
            await still_serves(made)

    run(test())


def test_many_who_say_nothing_take_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with star() as made:
            silent = []
            for _ in range(400):
                with contextlib.suppress(OSError):
                    silent.append(await asyncio.open_connection("127.0.0.1", made.port))
            await until(lambda: len(made.lead._unknown) <= MOST_UNKNOWN)
            await still_serves(made)
            for _, writer in silent:
                writer.close()

    run(test())


def test_two_nodes_that_have_the_same_ranks_are_both_heard_and_that_is_said_once() -> None:
    async def test() -> None:
        async with star() as made:
            first = made.node(0, (0, 1))
            await until(lambda: first.is_led)
            second = made.node(1, (0, 1))
            await until(lambda: second.is_led)
            assert made.said == ["ranks 0-1 of n2 are on n1 already"]
            assert not made.lead.are_all_there
            first.report(report_of(join_of(0, (0, 1)), asks=True), [])
            assert await first.wait_for_judgement() is not None
            assert made.judged == [(["n1", "n2"], [])]

    run(test())


# ---- what a node says that it cannot say ---------------------------------------------------------


async def say(made: Star, *messages: dict[str, Any]) -> None:
    """Be a node with the token that says this, until the connection is closed."""
    channel = await made.open()
    with contextlib.suppress(ConnectionError):
        for message in messages:
            channel.send(message)
        while True:
            await channel.read(LEASE)
    channel.close()


JOINS = encode(join_of(1))
WRONG = {
    "a word about another node's rank": (
        [JOINS, encode(Digest((RankWord(0, "runs", "1"),)))],
        "n2 is not heard on the link between nodes: it speaks of rank 0, which is not its own",
    ),
    "a report on another node's rank": (
        [JOINS, encode(report_of(join_of(0), asks=True))],
        "n2 is not heard on the link between nodes: it speaks of rank 0, which is not its own",
    ),
    "a node that is there": (
        [{**JOINS, "node": "0"}],
        "127.0.0.1 is not heard on the link between nodes: node 0 is there already, on n1",
    ),
    "a time below zero": (
        [JOINS, {"t": "echo", "beat": 1.0, "at": -1.0}],
        "n2 is not heard on the link between nodes: a message (echo) says what cannot be: "
        "a time below zero",
    ),
    "no name": (
        [{"t": "digest", "ranks": []}],
        "127.0.0.1 is not heard on the link between nodes: it did not say who it is",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_a_node_cannot_say_is_told_in_one_sentence(what: str) -> None:
    messages, sentence = WRONG[what]

    async def test() -> None:
        async with star() as made:
            node = made.node(0)
            await until(lambda: node.is_led)
            for _ in range(2):
                await say(made, *messages)
            assert [one for one in made.said if "not heard any more" not in one] == [sentence]
            node.report(report_of(join_of(0), asks=True), [])
            judged = await node.wait_for_judgement()
            assert judged is not None
            assert to_json(judged.verdict) == to_json(report_of(join_of(0)).verdict)

    run(test())


def test_what_was_sent_once_cannot_be_sent_again() -> None:
    async def test() -> None:
        async with star() as made:
            channel = await made.open()
            assert channel._seal is not None
            told = pack(JOINS, channel._seal)
            channel._writer.write(told + told)
            with contextlib.suppress(ConnectionError):
                while True:
                    await channel.read(LEASE)
            channel.close()
            assert made.said[:1] == [
                "n2 is not heard on the link between nodes: a message was changed, left out or "
                "repeated on the way"
            ]

    run(test())


def test_unknown_messages_and_fields_are_passed_over() -> None:
    async def test() -> None:
        async with star() as made:
            channel = await made.open()
            for message in ({**JOINS, "color": "blue"}, {"t": "something new"}):
                channel.send(message)
            channel.send(encode(report_of(join_of(1), asks=True)))
            await until(lambda: bool(made.judged))
            assert made.said == []
            channel.close()

    run(test())


def test_the_facts_of_a_rank_arrive_as_they_were() -> None:
    facts = rank(1, SLEEP, SLEEP)
    found: list[NodeAnswer] = []

    async def test() -> None:
        async with star() as made:

            async def judge(answers: Any, unseen: Any, asker: NodeAnswer) -> Judged:
                found.extend(answers)
                return Judged(0)

            made.lead._judge = judge
            node = made.node(1)
            await until(lambda: node.is_led)
            node.report(report_of(join_of(1), asks=True), [facts])
            await until(lambda: bool(found))

    run(test())
    assert to_json(found[0].facts[0]) == to_json(facts)
