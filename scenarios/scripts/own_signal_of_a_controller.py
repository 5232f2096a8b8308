"""Rank 1 waits for a signal that no controller sends; its peers wait in recv() of pipes.

The parent asks the ranks in turn, and says "go" to all once each has answered.
"""

import multiprocessing
import os
import signal
import sys
from multiprocessing.connection import Connection

WORLD = 3


def until_resumed() -> int:
    return signal.sigwait({signal.SIGUSR1})


def train(rank: int, pipe: Connection) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    if rank == 1:
        until_resumed()
    pipe.send(("ready", rank))
    pipe.recv()
    print(f"rank {rank} trains", flush=True)


def main() -> None:
    spawn = multiprocessing.get_context("spawn")
    ranks, pipes = [], []
    for rank in range(WORLD):
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(WORLD), LOCAL_RANK=str(rank))
        ours, theirs = spawn.Pipe()
        ranks.append(spawn.Process(target=train, args=(rank, theirs)))
        ranks[-1].start()
        pipes.append(ours)
    for pipe in pipes:
        pipe.recv()
    for pipe in pipes:
        pipe.send("go")
    for one in ranks:
        one.join()
    sys.exit(0)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# culprits = [[1]]
# waiting = [0, 2]
# steps = ["arguments"]
# after = ["Args parsed", ""]
# own_code = true
# calls = ['sigwait', 'until_resumed']
# causes = ["signal-wait"]
# ///
