"""Five stages hand out a receive and a send together; stage 2 does not send one of its messages.

Stage 1 waits for the gradient of it, at the handles of both; the others are at the barrier.
"""

import argparse

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

WORLD, WIDTH = 5, 32


def swap(rank: int, activation: torch.Tensor, drops: bool) -> list[torch.Tensor]:
    """Give the next stage an activation, and the one before a gradient; return what came."""
    came, works = [], []
    if rank < WORLD - 1:
        gradient = torch.zeros(WIDTH)
        works += [dist.irecv(gradient, src=rank + 1), dist.isend(activation, dst=rank + 1)]
        came.append(gradient)
    if rank > 0:
        before = torch.zeros(WIDTH)
        works.append(dist.irecv(before, src=rank - 1))
        if not drops:
            works.append(dist.isend(activation * 0.1, dst=rank - 1))
        came.append(before)
    for work in works:
        work.wait()
    return came


def train(rank: int, port: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=WORLD
    )
    layer = torch.nn.Linear(WIDTH, WIDTH)
    for step in range(8):
        activation = layer(torch.randn(WIDTH)).detach()
        # A gradient that overflowed is not handed back.
        came = swap(rank, activation, drops=rank == 2 and step == 5)
        print(f"rank {rank} step {step}: {sum(one.sum().item() for one in came):.3f}", flush=True)
        dist.barrier()
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    args = parser.parse_args()
    mp.spawn(train, args=(args.port,), nprocs=WORLD)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --port $PORT"
# culprits = [[2]]
# culprits_by_stacks = [[1, 2], []]
# waiting = [0, 1, 3, 4]
# steps = ["process_group", "training", "steady", "barrier", "first_barrier"]
# after = [
#   "Process group ready", "First barrier passed", "Barrier passed", "First barrier done", "",
# ]
# own_code = true
# calls = ['distributed\.\w+', 'swap', 'wait', 'train\.train']
# causes = ["message-left-out"]
# ///
