"""Six ranks average over multiprocessing.connection: rank 0 hears one after another, and answers.

Rank 4 has an empty batch, sends nothing for it and waits for the mean all the same; rank 0 waits
for what it sends.
"""

import multiprocessing
import time
from multiprocessing.connection import Client, Connection, Listener

WORLD = 6
ADDRESS = "means.sock"


def gradients(rank: int, step: int) -> list[float]:
    return [] if rank == 4 and step == 31 else [float(rank + step)] * 8


def serve(listener: Listener) -> None:
    peers: dict[int, Connection] = {}
    while len(peers) < WORLD - 1:
        peer = listener.accept()
        peers[peer.recv()] = peer
    for step in range(60):
        parts = [gradients(0, step), *(peers[rank].recv() for rank in sorted(peers))]
        mean = [sum(column) / WORLD for column in zip(*parts, strict=True)]
        for peer in peers.values():
            peer.send(mean)


def ask(rank: int) -> None:
    time.sleep(1.0)
    with Client(ADDRESS, "AF_UNIX") as hub:
        hub.send(rank)
        for step in range(60):
            own = gradients(rank, step)
            if own:
                hub.send(own)
            mean = hub.recv()
            if step % 20 == 0:
                print(f"rank {rank} step {step}: {mean[0]:.1f}", flush=True)


def train(rank: int) -> None:
    if rank:
        ask(rank)
        return
    with Listener(ADDRESS, "AF_UNIX") as listener:
        serve(listener)


def main() -> None:
    context = multiprocessing.get_context("spawn")
    ranks = [
        context.Process(target=train, args=(rank,), name=f"rank-{rank}") for rank in range(WORLD)
    ]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join()


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# culprits = [[4], [0, 4]]
# steps = ["script"]
# after = [""]
# own_code = true
# calls = ['recv', 'ask', 'serve', 'train']
# causes = ["deadlock"]
# ///
