"""mp.spawn: one rank at a time loads its weights; rank 2 meets the others before it lets go.

Rank 2 takes a short way through a cached file, with a barrier inside of the semaphore; the others
wait for the semaphore. Only its count says that somebody has it.
"""

import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

WORLD = 4


def load_cold(rank: int) -> torch.nn.Module:
    time.sleep(0.2)
    return torch.nn.Linear(32, 32)


def load_cached(rank: int) -> torch.nn.Module:
    model = torch.nn.Linear(32, 32)
    dist.barrier()  # nobody may remove the cache before all have read it
    return model


def train(rank: int, port: int, loading: mp.Semaphore) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=WORLD
    )
    cached = rank == 2
    if not cached:
        time.sleep(1)  # looks for its files
    with loading:
        model = load_cached(rank) if cached else load_cold(rank)
    if not cached:
        dist.barrier()
    for step in range(4):
        loss = model(torch.randn(4, 32)).pow(2).mean().detach()
        dist.all_reduce(loss)
        print(f"rank {rank} step {step} {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


def main() -> None:
    import argparse

    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    args = parser.parse_args()
    loading = mp.get_context("spawn").Semaphore(1)
    mp.spawn(train, args=(args.port, loading), nprocs=WORLD)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --port $PORT"
# culprits = [[2], [0, 1, 2, 3]]
# steps = ["process_group", "ddp_wrap", "first_collective", "first_barrier", "barrier", "training"]
# after = ["Process group ready", ""]
# own_code = true
# calls = ['barrier', 'acquire', '__enter__', 'load_cached']
# causes = ["deadlock", "rank-conditional-collective"]
# ///
