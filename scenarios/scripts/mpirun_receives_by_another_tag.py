"""mpirun: rank 0 sends a shape and then a table to each rank; rank 2 asks for the table first.

Gloo matches by tag, and a send ends only when it is received: rank 0 is in its send of the shape
to rank 2, rank 3 waits for rank 0, rank 1 has both and is in the barrier. All ranks but rank 2
keep the agreed order; that rank 0 and rank 2 wait for one another is right as well.
"""

import argparse
import os

import torch
import torch.distributed as dist

SHAPE, TABLE = 1, 2


def hand_out(world: int) -> torch.Tensor:
    table = torch.randn(64, 16)
    for other in range(1, world):
        dist.send(torch.tensor(table.shape), dst=other, tag=SHAPE)
        dist.send(table, dst=other, tag=TABLE)
    return table


def fetch() -> torch.Tensor:
    shape = torch.empty(2, dtype=torch.int64)
    dist.recv(shape, src=0, tag=SHAPE)
    table = torch.empty(*shape.tolist())
    dist.recv(table, src=0, tag=TABLE)
    return table


def fetch_of_known_size() -> torch.Tensor:
    """As it was before the shape was sent along."""
    table, shape = torch.empty(64, 16), torch.empty(2, dtype=torch.int64)
    dist.recv(table, src=0, tag=TABLE)
    dist.recv(shape, src=0, tag=SHAPE)
    return table


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", required=True)
    args = parser.parse_args()
    rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
    world = int(os.environ["OMPI_COMM_WORLD_SIZE"])
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{args.port}", rank=rank, world_size=world
    )
    get = fetch_of_known_size if rank == 2 else fetch
    table = hand_out(world) if rank == 0 else get()
    dist.barrier()
    print(f"rank {rank}: {table.shape}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = """mpirun --allow-run-as-root --oversubscribe --bind-to none -n 4 python train.py \
# --port $PORT"""
# culprits = [[2], [0, 2]]
# waiting = [1, 3]
# steps = ["process_group", "ddp_wrap", "first_collective", "first_recv", "first_send", "training"]
# after = ["Process group ready", "First send done", ""]
# own_code = true
# calls = ['distributed\.(recv|send)', 'fetch_of_known_size']
# causes = ["message-left-out", "deadlock", "collective-mismatch"]
# ///
