"""Send fuzzed messages to a lead of the link between nodes, and count what they do to it.

    python benchmarks/link_fuzz.py [--messages 100000] [--seed 1]

Half of the connections know the token and send messages that are changed, repeated or say what
cannot be; the others are strangers who send bytes. All the while one node talks to the lead as it
should. Wanted: the lead serves that node to the end and judges what it reports as before, no
exception gets out, and its memory stays within 64 MiB of what it was.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import random
import resource
import sys
import time
from typing import Any

from hangbisect.link.channel import Channel, Credentials, Seal, open_channel, pack
from hangbisect.link.lead import Lead
from hangbisect.link.messages import Digest, Join, Judged, RankWord, encode
from hangbisect.link.node import NodeLink

OURS = Credentials("job", b"k" * 16)
JOIN = Join("1", "n2", "process", (1,), 4)
AT_ONCE = 25  # messages of a connection
VALUES: tuple[Any, ...] = (None, -1, 1 << 70, 1.5, "", "x" * 5000, [], {}, [[[]]], True, "NaN")


def fuzzed(random_: random.Random) -> dict[str, Any]:
    """Return a message in which something is not as it should be."""
    words = Digest((RankWord(1, "runs", "4 Tokenizer loaded"),))
    told = random_.choice([encode(JOIN), encode(words), {"t": "echo", "beat": 1.0, "at": 2.0}])
    told = json.loads(json.dumps(told))
    for _ in range(random_.randint(0, 2)):
        told[random_.choice([*told, "color"])] = random_.choice(VALUES)
    return {**told, "t": str(told["t"])}


async def know_the_token(port: int, random_: random.Random, left: int) -> int:
    """Say what cannot be, as one who has the token. Return how many messages were sent."""
    channel, sent = await open_channel("127.0.0.1", port, 5.0), 0
    with contextlib.suppress(Exception):  # the lead may let go at any message
        await channel.greet(OURS)
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


async def measure(messages: int, seed: int) -> bool:
    """Send so many. Return whether all was as it should be."""
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # it tells of each closed socket
    random_, said, failed = random.Random(seed), list[str](), list[str]()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: failed.append(str(context.get("message"))))

    async def judge(*_: Any) -> Judged:
        return Judged(0)

    lead = Lead(OURS, "n1", judge, said.append)
    port = await lead.listen("127.0.0.1", 0)

    async def find() -> tuple[list[tuple[str, int]], Credentials]:
        return [("127.0.0.1", port)], OURS

    word = RankWord(0, "runs", "1")
    link = NodeLink(Join("0", "n1", "p", (0,), 4), find, lambda: Digest((word,)), lambda: None)
    node = asyncio.create_task(link.run())
    await asyncio.sleep(0.5)
    memory, began, sent, lost = peak(), time.monotonic(), 0, 0
    while sent < messages:
        calls = [random_.choice([know_the_token, know_nothing]) for _ in range(20)]
        sent += sum(await asyncio.gather(*(call(port, random_, AT_ONCE) for call in calls)))
        lost += not link.is_led
    seconds, grown = time.monotonic() - began, peak() - memory
    served = link.is_led and lost == 0
    print(f"{sent} messages in {seconds:.0f} s; memory {grown:+d} MiB; {len(said)} sentences")
    print(f"the node was {'served all the while' if served else f'lost {lost} times'}")
    for sentence in [*said[:5], *failed[:5]]:
        print(f"    {sentence[:150]}")
    node.cancel()
    lead.close()
    return served and not failed and grown < 64


def peak() -> int:
    """Return how much memory this process has had at the most, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    return 0 if asyncio.run(measure(args.messages, args.seed)) else 1


if __name__ == "__main__":
    sys.exit(main())
