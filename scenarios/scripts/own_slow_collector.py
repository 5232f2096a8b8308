"""Healthy and slow: rank 1 of three collects garbage in a large graph, one long pause each time.

The collector keeps the GIL and calls nothing; the others are in a barrier of gloo.
"""

import argparse
import gc
import os
import subprocess
import sys
import time

import torch
import torch.distributed as dist

WORLD = 3
parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int, required=True)
parser.add_argument("--seconds", type=float, required=True)
args = parser.parse_args()


class Node:
    __slots__ = ("after", "before")

    def __init__(self, before: "Node | None") -> None:
        self.before, self.after = before, None


def build_graph(count: int) -> list[Node]:
    gc.disable()
    nodes = [Node(None)]
    for _ in range(count):
        nodes.append(Node(nodes[-1]))
        nodes[-2].after = nodes[-1]
    gc.enable()
    return nodes


def train(rank: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{args.port}", rank=rank, world_size=WORLD
    )
    if rank == 1:
        graph = build_graph(4_000_000)
        end = time.monotonic() + args.seconds
        while time.monotonic() < end:
            gc.collect()
        print(len(graph), "nodes", flush=True)
    dist.barrier()
    print(f"rank {rank} trains", flush=True)
    dist.destroy_process_group()


def main() -> None:
    if "RANK" in os.environ:
        train(int(os.environ["RANK"]))
        return
    ranks = []
    for rank in range(WORLD):
        own = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(WORLD), "LOCAL_RANK": str(rank)}
        ranks.append(subprocess.Popen([sys.executable, *sys.argv], env=own))
    sys.exit(max(one.wait() for one in ranks))


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --port $PORT --seconds $AMOUNT"
# outcome = "ok"
# amount = 45.0
# ///
