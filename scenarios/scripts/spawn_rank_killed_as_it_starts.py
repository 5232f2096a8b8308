"""multiprocessing: rank 1 is killed as it starts, and its parent waits in join() for rank 0, which
waits for it in the rendezvous of gloo.
"""

import multiprocessing as mp
import os
import signal
import sys


def train(rank: int, world: int, port: str) -> None:
    if rank == 1:  # as the kernel does where memory runs out
        os.kill(os.getpid(), signal.SIGKILL)
    import torch.distributed as dist

    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world
    )
    dist.destroy_process_group()


if __name__ == "__main__":
    context = mp.get_context("spawn")
    ranks = [context.Process(target=train, args=(rank, 2, sys.argv[1])) for rank in range(2)]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join()

# /// case
# command = "python train.py $PORT"
# outcome = "hang"
# culprits = [[1]]
# waiting = [0]
# steps = ["process_group", "script"]
# after = [""]
# calls = ['init_process_group', '^$']
# says = ['SIGKILL|signal 9']
# ///
