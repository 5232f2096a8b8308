"""Rank 3 of five: a coroutine hands a query to the loop that runs it, and waits for the result.

The helper was written for other threads. The other ranks wait at rank 0's streams.
"""

import argparse
import asyncio
import os
import subprocess
import sys

WORLD = 5
parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int, required=True)
args = parser.parse_args()


class Catalogue:
    """Knows where the shards lie; asks for that in the loop of the process."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop

    async def _query(self, shard: int) -> str:
        await asyncio.sleep(0.05)
        return f"/data/shard-{shard}"

    def find(self, shard: int) -> str:
        """For use in threads."""
        return asyncio.run_coroutine_threadsafe(self._query(shard), self.loop).result()


async def find_shards(rank: int) -> list[str]:
    catalogue = Catalogue(asyncio.get_running_loop())
    if rank == 3:  # has few shards: no threads are worth it
        return [catalogue.find(shard) for shard in range(2)]
    return await asyncio.gather(*(asyncio.to_thread(catalogue.find, one) for one in range(8)))


async def serve(rank: int) -> None:
    """Rank 0: wait until all have said how many shards they have, and let them go."""
    counts: dict[int, int] = {}
    all_here = asyncio.Event()

    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        other, count = (await reader.readline()).split()
        counts[int(other)] = int(count)
        if len(counts) == WORLD - 1:
            all_here.set()
        await all_here.wait()
        writer.write(b"go\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(meet, "127.0.0.1", args.port)
    async with server:
        await find_shards(rank)
        await all_here.wait()
        await asyncio.sleep(0.5)


async def join(rank: int) -> None:
    shards = await find_shards(rank)
    while True:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", args.port)
            break
        except OSError:
            await asyncio.sleep(0.2)
    writer.write(f"{rank} {len(shards)}\n".encode())
    await reader.readline()
    writer.close()


def main() -> None:
    if "RANK" in os.environ:
        rank = int(os.environ["RANK"])
        asyncio.run(serve(rank) if rank == 0 else join(rank))
        print(f"rank {rank} trains", flush=True)
        return
    ranks = []
    for rank in range(WORLD):
        own = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(WORLD), "LOCAL_RANK": str(rank)}
        ranks.append(subprocess.Popen([sys.executable, *sys.argv], env=own))
    sys.exit(max(one.wait() for one in ranks))


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --port $PORT"
# culprits = [[3]]
# waiting = [0, 1, 2, 4]
# steps = ["arguments"]
# after = ["Args parsed", ""]
# own_code = true
# calls = ['find', 'find_shards', 'result']
# causes = ["event-loop", "self-deadlock", "deadlock", "loop-waits-for-itself"]
# ///
