"""What the monitor that leads the nodes of a large job costs, and how soon it gives the verdict.

    python benchmarks/many_nodes.py [--nodes 1250] [--ranks 8] [--rest 15]

One process is the lead: the link's own (link/lead.py), judging as a monitor does, and writing the
verdict. Another one is all the nodes: each with a connection of its own, saying what a node says,
of made-up ranks with looks as large as real ones (attach_nodes.py). One rank of
all reads from a server that does not answer. Counted are the lead's seconds of a processor while
all join, in a second in which nothing happens, and for the verdict; the time from the first node's
question to the written verdict; the lead's memory; and bytes on their way: of a report, of a word
on each rank that its node says every two seconds (a digest: at most 64 a rank are asked for), and
of all that lead and nodes say to one another from the question to the verdict (3 MB at 10,000
ranks).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from attach_nodes import make_rank
from hangbisect.base.checkpoints import STARTUP
from hangbisect.base.client_program import allow_descriptors
from hangbisect.base.json_codec import to_json
from hangbisect.base.node_record import NodeClock, make_node_record
from hangbisect.base.rank_facts import JobFacts
from hangbisect.diagnosis.verdict import judge_job
from hangbisect.link import channel as link_channel
from hangbisect.link.channel import (
    Channel,
    Credentials,
    Decoder,
    Message,
    Seal,
    make_body,
    open_channel,
    pack,
)
from hangbisect.link.lead import Lead
from hangbisect.link.look_summary import LookSummary
from hangbisect.link.messages import (
    Digest,
    Join,
    Judged,
    LookDetails,
    RankKind,
    RankLooks,
    RankWord,
    Report,
    encode,
)
from hangbisect.link.node import DIGEST_EVERY, MOST_WHOLE, list_alike
from hangbisect.link.peers import NodeAnswer, Unseen
from hangbisect.monitor.reported_nodes import judge_reported_nodes

OURS = Credentials("a large job", b"k" * 16)
LIMIT = 300.0  # seconds for anything
AGAIN = 0.5  # seconds, as a node waits (link/node.py)


def main() -> int:
    """Measure, and return 1 where the verdict is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=1250)
    parser.add_argument("--ranks", type=int, default=8, help="of each node")
    parser.add_argument("--rest", type=float, default=15.0, help="seconds in which nothing happens")
    parser.add_argument("--port", type=int, default=0, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.port:
        return asyncio.run(be_nodes(args))
    return asyncio.run(lead_nodes(args))


# ---- the lead ------------------------------------------------------------------------------------


def used_seconds() -> float:
    """Return how much of a processor this process has used."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


class Traffic:
    """Counts the bytes that this process hears and says over the link."""

    def __init__(self) -> None:
        self.heard = self.said = 0
        feed, pack_body = Decoder.feed, link_channel.pack_body

        def count_heard(decoder: Decoder, data: bytes) -> None:
            self.heard += len(data)
            feed(decoder, data)

        def count_said(body: bytes, seal: Seal | None = None) -> bytes:
            packed = pack_body(body, seal)
            self.said += len(packed)
            return packed

        Decoder.feed = count_heard  # type: ignore[method-assign]
        link_channel.pack_body = count_said


async def lead_nodes(args: argparse.Namespace) -> int:
    """Lead nodes that another process is, and print what it cost."""
    allow_descriptors(args.nodes)
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # as a monitor does
    world = args.nodes * args.ranks
    judged_at = asyncio.get_running_loop().create_future()
    folder = Path(tempfile.mkdtemp())
    traffic = Traffic()

    async def judge(
        answers: Sequence[NodeAnswer], unseen: Sequence[Unseen], asker: NodeAnswer
    ) -> Judged:
        heard = time.monotonic()
        judged, joint = await judge_reported_nodes("0", answers, unseen, asker)
        if joint is not None:
            (folder / "verdict.json").write_text(json.dumps(to_json(joint.verdict)))
        if not judged_at.done():
            judged_at.set_result((heard, time.monotonic(), len(answers), judged))
        return judged

    lead = Lead(OURS, "n0000", judge, lambda said: print(f"  lead: {said}", file=sys.stderr))
    port = await lead.listen("127.0.0.1", 0)
    words = [sys.executable, __file__, "--port", str(port), "--nodes", str(args.nodes)]
    words += ["--ranks", str(args.ranks)]
    nodes = subprocess.Popen(words, stdin=subprocess.PIPE, text=True)
    assert nodes.stdin is not None
    try:
        while not lead._peers:  # they prepare what they are going to report
            await asyncio.sleep(0.05)
        before, began = used_seconds(), time.monotonic()
        while not lead.are_all_there and time.monotonic() < began + LIMIT:
            await asyncio.sleep(0.05)
        joined, took = used_seconds() - before, time.monotonic() - began
        await asyncio.sleep(5.0)
        before, began = used_seconds(), time.monotonic()
        await asyncio.sleep(args.rest)
        rest = (used_seconds() - before) / (time.monotonic() - began)
        before, asked = used_seconds(), time.monotonic()
        heard_before, said_before = traffic.heard, traffic.said
        nodes.stdin.write("ask\n")
        nodes.stdin.flush()
        heard, written, answers, judged = await asyncio.wait_for(judged_at, LIMIT)
        spent = used_seconds() - before
        heard_bytes, said_bytes = traffic.heard - heard_before, traffic.said - said_before
    finally:
        nodes.kill()
        nodes.wait()
        lead.close()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    culprit = judged.verdict.ranks.culprit if judged.verdict else ()
    node = MadeUpNode(0, args)
    report, digest = len(make_body(node.said)), len(pack(node.digest, Seal(b"k"))) / args.ranks
    size = (folder / "verdict.json").stat().st_size / 1e6 if judged.verdict else 0.0
    print(
        f"{args.nodes} nodes of {args.ranks} ranks: joined in {took:.1f} s ({joined:.2f} s of a "
        f"processor), at rest {rest:.1%} of one; {answers} answers {heard - asked:.1f} s after the "
        f"question, the verdict {written - heard:.1f} s later ({spent:.1f} s of a processor in "
        f"all); {memory:.0f} MB, verdict.json {size:.2f} MB, culprit {culprit}; a report is "
        f"{report} bytes; a digest {digest:.0f} bytes a rank (asked: 64); the inquiry "
        f"{heard_bytes / 1e6:.2f} MB to the lead and {said_bytes / 1e6:.2f} MB from it, beats and "
        f"digests of {written - asked:.1f} s among them (asked: 3 MB at 10,000 ranks)"
    )
    return int(tuple(culprit) != (world // 3,) or answers < args.nodes)


# ---- the nodes -----------------------------------------------------------------------------------


@dataclass
class Told:
    """What a node says of its ranks: its report, and what it tells of each when it is asked."""

    report: dict[str, Any]
    summaries: list[LookSummary]
    looks: dict[int, bytes]  # by rank
    alike: dict[int, str]  # by rank


def make_up(args: argparse.Namespace, host: str, ranks: tuple[int, ...]) -> Told:
    """Return what a node with these ranks says, by the code of a node's end (link/node.py)."""
    world = args.nodes * args.ranks
    facts = [replace(make_rank(n, n == world // 3), host=host) for n in ranks]
    told = JobFacts(
        ended="still",
        pipeline="startup",
        command=("torchrun", "train.py"),
        attempt=0,
        world_size=world,
        local_ranks=ranks,
        table=STARTUP,
        now=104.0,
        started=10.0,
        package="/opt/hangbisect",
        still=60.0,
        to_verdict=1.3,
    )
    record = make_node_record(host, told, facts, NodeClock(104.0, time.time()))
    summaries = [LookSummary((one,)) for one in facts]
    looks = [RankLooks(one.ranks[0], one.looks[0], one.parts) for one in summaries]
    report = Report(0, record, judge_job(told, facts), "still", looks=0)
    alike = list_alike(report, summaries) if world > MOST_WHOLE else {}
    kinds = tuple(RankKind(rank, kind) for rank, kind in alike.items())
    said = encode(replace(report, looks=len(looks) - len(alike), alike=kinds))
    bodies = [make_body(encode(one)) for one in looks]
    return Told(said, summaries, dict(zip(ranks, bodies, strict=True)), alike)


# A node whose ranks all wait is made up once; every other such node says the same of ranks of its
# own. Their numbers in it stand nowhere else, nor do their pids without the last figure
# (diagnosis_scale.py).
_ANY_RANK, _ANY_HOST = 77_777_776, "n-any"
_PIDS_OVER_RANKS = 1000


@cache
def make_up_any(nodes: int, ranks: int) -> str:
    """Return as JSON what a node whose ranks all wait reports."""
    args = argparse.Namespace(nodes=nodes, ranks=ranks)
    return json.dumps(make_up(args, _ANY_HOST, tuple(range(_ANY_RANK, _ANY_RANK + ranks))).report)


class MadeUpNode:
    """One node: it says what a node's end of the link says, with all of it made ready before: on a
    real job each node does that on a machine of its own.
    """

    def __init__(self, number: int, args: argparse.Namespace) -> None:
        self._args, world = args, args.nodes * args.ranks
        self._ranks = tuple(range(number * args.ranks, (number + 1) * args.ranks))
        self._host = f"n{number:04}"
        self._join = Join(str(number), self._host, f"process {number}", self._ranks, world)
        words = tuple(RankWord(one, "runs", "9 WandbLogger created") for one in self._ranks)
        self.digest = encode(Digest(words))
        self._digest = make_body(self.digest)
        self._channel: Channel | None = None
        self._every = 1.0  # seconds between two beats of the lead
        if world <= MOST_WHOLE or world // 3 in self._ranks:
            self.said = self._told.report
            return
        said = make_up_any(args.nodes, args.ranks).replace(_ANY_HOST, self._host)
        for n, rank in enumerate(self._ranks):
            said = said.replace(str(_ANY_RANK + n), str(rank))
            pids = _PIDS_OVER_RANKS + _ANY_RANK + n
            said = said.replace(str(pids), str(_PIDS_OVER_RANKS + rank))
        self.said = json.loads(said)

    @cached_property
    def _told(self) -> Told:
        return make_up(self._args, self._host, self._ranks)

    async def run(self) -> None:
        """Talk to the lead, again where it had no room for one more who has not proved itself."""
        while True:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await self._talk()
            await asyncio.sleep(AGAIN)

    async def _talk(self) -> None:
        channel = self._channel = await open_channel("127.0.0.1", self._args.port, LIMIT)
        await channel.greet(OURS)
        channel.send(encode(self._join))
        telling = asyncio.create_task(self._tell(channel))
        try:
            while True:
                self._hear(channel, await channel.read(LIMIT))
        finally:
            telling.cancel()

    async def _tell(self, channel: Channel) -> None:
        while True:
            channel.send_body(self._digest)
            await asyncio.sleep(DIGEST_EVERY * self._every)

    def _hear(self, channel: Channel, message: Message) -> None:
        if message["t"] == "beat":
            self._every = message.get("every", 1.0)
            channel.send({"t": "echo", "beat": message["at"], "at": time.monotonic()})
        elif message["t"] == "look":
            self.report(message["inquiry"])
        elif message["t"] == "want" and message.get("ranks"):
            for rank in message["ranks"]:
                channel.send_body(self._told.looks[rank])
        elif message["t"] == "want":
            for one in self._told.summaries:
                stacks, texts = one.give_details(message.get("stacks", ()), message.get("pids", ()))
                if stacks or texts:
                    channel.send(encode(LookDetails(stacks, texts)))
            channel.send(encode(LookDetails(is_last=True)))

    def report(self, inquiry: int) -> None:
        """Tell what this node sees; ask for a verdict where nobody asked (0)."""
        assert self._channel is not None
        clock = {"monotonic": time.monotonic(), "wall": time.time()}
        record = {**self.said["record"], "clock": clock}
        told = {"inquiry": inquiry, "asks": not inquiry, "record": record}
        self._channel.send({**self.said, **told})
        if self.said["looks"]:
            for rank, body in self._told.looks.items():
                if rank not in self._told.alike:
                    self._channel.send_body(body)


async def be_nodes(args: argparse.Namespace) -> int:
    """Be all nodes, until standard input says that the clock of the last one has run out."""
    allow_descriptors(args.nodes)
    nodes = [MadeUpNode(number, args) for number in range(args.nodes)]
    tasks = []
    for node in nodes:
        tasks.append(asyncio.create_task(node.run()))
        await asyncio.sleep(0.002)
    await asyncio.to_thread(sys.stdin.readline)
    nodes[-1].report(0)
    await asyncio.sleep(LIMIT)
    return 0


if __name__ == "__main__":
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.exit(main())
