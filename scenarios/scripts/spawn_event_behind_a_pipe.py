"""Ranks 0 and 1 of three wait for an event that rank 2 sets once it has read its vocabulary.

Rank 2 opens a named pipe that nobody writes.
"""

import argparse
import multiprocessing as mp
from pathlib import Path

import torch


def train(rank: int, ready: "mp.synchronize.Event", vocabulary: Path) -> None:
    torch.set_num_threads(1)
    model = torch.nn.Linear(16, 1)
    if rank == 2:
        words = vocabulary.read_text().split()
        print(f"{len(words)} words", flush=True)
        ready.set()
    ready.wait()
    model(torch.randn(8, 16)).sum().backward()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--vocabulary", type=Path, required=True)
    args = parser.parse_args()
    context = mp.get_context("spawn")
    ready = context.Event()
    ranks = [context.Process(target=train, args=(n, ready, args.vocabulary)) for n in range(3)]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join()


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --vocabulary $FIFO"
# world = "unopened_fifo"
# culprits = [[2], [0]]
# steps = ["arguments", "training"]
# after = ["Args parsed", ""]
# own_code = true
# calls = ["open", "read_text", "join"]
# causes = ["pipe-no-writer"]
# says = ["read_text|open"]
# ///
