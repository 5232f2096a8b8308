"""Send fuzzed messages to a lead of the link between nodes, and count what they do to it.

    python benchmarks/link_fuzz.py [--messages 100000] [--seed 1]
    python benchmarks/link_fuzz.py --silent 10000

A third of the connections know the token and send messages that are changed, repeated or say what
cannot be; a third know the job and prove nothing, and send the same, for the lead hears those too;
the others are strangers who send bytes. All the while one node talks to the lead as it
should. Wanted: the lead serves that node to the end and judges what it reports as before, no
exception gets out, and its memory stays within 64 MiB of what it was.

`--silent`: processes of their own open so many connections, all at once, and say nothing; they stay
open at their side to the end. Wanted: the same, and that the lead lets go of all but a few.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import random
import resource
import subprocess
import sys
import time
from typing import Any

from hangbisect.base.client_program import allow_descriptors
from hangbisect.link.channel import Channel, Credentials, Seal, open_channel, pack
from hangbisect.link.lead import MOST_UNKNOWN, Lead
from hangbisect.link.messages import Digest, Join, Judged, RankWord, encode
from hangbisect.link.node import NodeLink

OURS = Credentials("job", b"k" * 16)
JOIN = Join("1", "n2", "process", (1,), 4)
AT_ONCE = 25  # messages of a connection
OF_A_PROCESS = 2500  # silent connections
HELD = 15.0  # seconds for which they are open once all are
SILENT = """
import resource, socket, sys
port, count = map(int, sys.argv[1:])
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
kept, failed = [], 0
for _ in range(count):
    try:
        kept.append(socket.create_connection(("127.0.0.1", port), timeout=30))
    except OSError:
        failed += 1
print(len(kept), failed, flush=True)
sys.stdin.read()
"""
VALUES: tuple[Any, ...] = (None, -1, 1 << 70, 1.5, "", "x" * 5000, [], {}, [[[]]], True, "NaN")


def fuzzed(random_: random.Random) -> dict[str, Any]:
    """Return a message in which something is not as it should be."""
    words = Digest((RankWord(1, "runs", "4 Tokenizer loaded"),))
    told = random_.choice([encode(JOIN), encode(words), {"t": "echo", "beat": 1.0, "at": 2.0}])
    told = json.loads(json.dumps(told))
    for _ in range(random_.randint(0, 2)):
        told[random_.choice([*told, "color"])] = random_.choice(VALUES)
    return {**told, "t": str(told["t"])}


async def know_the_token(
    port: int, random_: random.Random, left: int, who: Credentials = OURS
) -> int:
    """Say what cannot be, as one who has the token. Return how many messages were sent."""
    channel, sent = await open_channel("127.0.0.1", port, 5.0), 0
    with contextlib.suppress(Exception):  # the lead may let go at any message
        await channel.greet(who)
        channel.send(encode(JOIN))
        for _ in range(left):
            sent += 1
            _send(channel, pack(fuzzed(random_), channel._seal), random_)
            await asyncio.sleep(0)
    channel.close()
    return max(1, sent)


def _send(channel: Channel, data: bytes, random_: random.Random) -> None:
    kind = random_.randrange(6)
    if kind == 0:
        data = bytearray(data)  # type: ignore[assignment]  # a changed byte
        data[random_.randrange(len(data))] ^= 1 << random_.randrange(8)  # type: ignore[index]
    elif kind == 1:
        data += data
    elif kind == 2:
        data = data[: random_.randrange(len(data))]
    channel._writer.write(data)


async def know_the_job(port: int, random_: random.Random, left: int) -> int:
    """Say what cannot be, as one who knows the job and has no token. Return how many messages were
    sent.
    """
    return await know_the_token(port, random_, left, Credentials(OURS.job))


async def know_nothing(port: int, random_: random.Random, left: int) -> int:
    """Send bytes, as a stranger. Return how many messages were sent."""
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    with contextlib.suppress(OSError):
        for _ in range(left):
            message = random_.choice([random_.randbytes(200), pack(fuzzed(random_), Seal(b"x"))])
            writer.write(message)
            await asyncio.sleep(0)
    writer.transport.abort()
    return left


class Served:
    """A lead, and a node that talks to it all the while."""

    def __init__(self) -> None:
        """Nothing is begun before begin()."""
        self.said, self.failed = list[str](), list[str]()
        self.lead = Lead(OURS, "n1", self._judge, self.said.append)
        self.lead.hear_unproved(lambda join: "")
        self.port = self.lost = 0
        self.peak_before = 0

    async def _judge(self, *_: Any) -> Judged:
        return Judged(0)

    async def _find(self) -> tuple[list[tuple[str, int]], Credentials]:
        return [("127.0.0.1", self.port)], OURS

    async def begin(self) -> None:
        """Have the node join."""
        logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # it tells of each closed socket
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, what: self.failed.append(str(what.get("message"))))
        self.port = await self.lead.listen("127.0.0.1", 0)
        word, join = RankWord(0, "runs", "1"), Join("0", "n1", "p", (0,), 4)
        self.link = NodeLink(join, self._find, lambda: Digest((word,)), lambda: None)
        self._node = asyncio.create_task(self.link.run())
        await asyncio.sleep(0.5)
        self.peak_before, self._began = peak(), time.monotonic()

    def look(self) -> None:
        """Count whether the node is served at this moment."""
        self.lost += not self.link.is_led

    def end(self, what: str) -> bool:
        """Say what came of it, and return whether all was as it should be."""
        seconds, grown = time.monotonic() - self._began, peak() - self.peak_before
        served = self.link.is_led and self.lost == 0
        print(f"{what} in {seconds:.0f} s; memory {grown:+d} MiB; {len(self.said)} sentences")
        print(f"the node was {'served all the while' if served else f'lost {self.lost} times'}")
        for sentence in [*self.said[:5], *self.failed[:5]]:
            print(f"    {sentence[:150]}")
        self._node.cancel()
        self.lead.close()
        return served and not self.failed and grown < 64


async def measure(messages: int, seed: int) -> bool:
    """Send so many. Return whether all was as it should be."""
    random_, served, sent = random.Random(seed), Served(), 0
    await served.begin()
    while sent < messages:
        calls = [random_.choice([know_the_token, know_the_job, know_nothing]) for _ in range(20)]
        sent += sum(await asyncio.gather(*(call(served.port, random_, AT_ONCE) for call in calls)))
        served.look()
    return served.end(f"{sent} messages")


async def say_nothing(count: int) -> bool:
    """Open so many connections, and keep them. Return whether all was as it should be."""
    served = Served()
    await served.begin()
    shares = [OF_A_PROCESS] * (count // OF_A_PROCESS)
    shares += [count % OF_A_PROCESS] if count % OF_A_PROCESS else []
    allow_descriptors(len(shares))
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    before = count_descriptors()
    most, spent = before, used_seconds()
    clients = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", "-c", SILENT, str(served.port), str(share)), **pipes
        )
        for share in shares
    ]
    try:
        lines = [asyncio.create_task(one.stdout.readline()) for one in clients if one.stdout]
        until = time.monotonic() + HELD
        while time.monotonic() < until:
            await asyncio.sleep(0.1)
            served.look()
            most = max(most, count_descriptors())
            if not all(line.done() for line in lines):
                until = time.monotonic() + HELD
        told = [tuple(map(int, (await line).split())) for line in lines]
        spent = used_seconds() - spent
        left = count_descriptors() - before - 2 * len(clients)
    finally:
        for one in clients:
            one.kill()
            await one.wait()
    opened, failed = (sum(each) for each in zip(*told, strict=True))
    print(
        f"the lead had {most - before} descriptors more at the most, {left} at the end; "
        f"{spent:.1f} s of a processor, {failed} connections did not come about"
    )
    return served.end(f"{opened} silent connections") and left <= MOST_UNKNOWN


def count_descriptors() -> int:
    """Return how many descriptors this process has open."""
    return len(os.listdir("/proc/self/fd"))


def used_seconds() -> float:
    """Return how much of a processor this process has used."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def peak() -> int:
    """Return how much memory this process has had at the most, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--silent", type=int, default=0, help="connections that say nothing")
    args = parser.parse_args()
    if args.silent:
        return 0 if asyncio.run(say_nothing(args.silent)) else 1
    return 0 if asyncio.run(measure(args.messages, args.seed)) else 1


if __name__ == "__main__":
    sys.exit(main())
