"""Ranks pass a token round a ring of streams in asyncio; rank 2 awaits an Event that nobody sets.

Each rank serves a port and connects to the next one. The token comes to rank 2, which awaits that
its cache is warm before it hands the token on.
"""

import argparse
import asyncio
import os
import subprocess
import sys


class Node:
    def __init__(self, rank: int, world: int, port: int) -> None:
        self.rank, self.world, self.port = rank, world, port
        self.warm = asyncio.Event()
        self.came: asyncio.Queue[bytes] = asyncio.Queue()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while token := await reader.readline():
            await self.came.put(token)
        writer.close()

    async def connect(self) -> asyncio.StreamWriter:
        there = self.port + (self.rank + 1) % self.world
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", there)
                return writer
            except OSError:
                await asyncio.sleep(0.1)

    async def pass_on(self, following: asyncio.StreamWriter, token: bytes) -> None:
        await self.warm.wait()
        following.write(token)
        await following.drain()

    async def train(self) -> None:
        server = await asyncio.start_server(self.serve, "127.0.0.1", self.port + self.rank)
        following = await self.connect()
        if self.rank != 2:
            self.warm.set()
        if self.rank == 0:
            await self.pass_on(following, b"token\n")
        token = await self.came.get()
        if self.rank:
            await self.pass_on(following, token)
        print(f"rank {self.rank} trains", flush=True)
        server.close()


async def main_of_rank(rank: int, world: int, port: int) -> None:
    await Node(rank, world, port).train()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--world", type=int, default=4)
    args = parser.parse_args()
    if "RANK" in os.environ:
        asyncio.run(main_of_rank(int(os.environ["RANK"]), args.world, args.port))
        return
    ranks = []
    for rank in range(args.world):
        own = {
            **os.environ,
            "RANK": str(rank),
            "WORLD_SIZE": str(args.world),
            "LOCAL_RANK": str(rank),
        }
        ranks.append(subprocess.Popen([sys.executable, *sys.argv], env=own))
    sys.exit(max(one.wait() for one in ranks))


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --port $PORT"
# culprits = [[2], []]
# culprits_by_stacks = [[2, 3]]
# waiting = [0]
# steps = ["arguments"]
# after = ["Args parsed", ""]
# own_code = true
# calls = ['asyncio', 'select', 'train', 'main', '^$']
# causes = ["unknown"]
# ///
