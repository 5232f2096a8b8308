"""Rank 1 of four asks a program and select()s for its answers, of which one is in a buffer already.

It read the first of two lines, and Python's buffer took both. The others are at a barrier of gloo.
"""

import argparse
import os
import select
import subprocess
import sys

import torch
import torch.distributed as dist

WORLD = 4
FILTER = """
import sys
for line in sys.stdin:
    word = line.strip()
    answer = f"token {word}\\n"
    if len(word) > 8:  # in two parts
        answer = f"token {word[:8]}\\ntoken {word[8:]}\\n"
    sys.stdout.write(answer)
    sys.stdout.flush()
"""


class Splitter:
    """A program that answers each word by as many lines as it has tokens."""

    def __init__(self) -> None:
        self.program = subprocess.Popen(
            [sys.executable, "-c", FILTER], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def tokens(self, word: str) -> list[str]:
        assert self.program.stdin is not None
        assert self.program.stdout is not None
        self.program.stdin.write(word.encode() + b"\n")
        self.program.stdin.flush()
        found: list[str] = []
        while sum(map(len, found)) < len(word):
            select.select([self.program.stdout], [], [])
            found.append(self.program.stdout.readline().decode().split()[1])
        return found


def train(rank: int, port: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=WORLD
    )
    splitter = Splitter()
    words = ["the", "cat", "sits"] + ["incomprehensible"] * (rank == 1)
    count = torch.tensor(sum(len(splitter.tokens(word)) for word in words))
    dist.barrier()
    dist.all_reduce(count)
    print(f"rank {rank}: {count} tokens", flush=True)
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    args = parser.parse_args()
    if "RANK" in os.environ:
        train(int(os.environ["RANK"]), args.port)
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
# culprits = [[1]]
# waiting = [0, 2, 3]
# steps = ["process_group", "training"]
# after = ["Process group ready", ""]
# own_code = true
# calls = ['tokens', 'select', 'train\.train']
# causes = ["deadlock", "child-program", "child-process-stuck", "pipe-no-writer", "unknown"]
# ///
