"""mpi4py: rank 0 sends each rank its part with the tag of the epoch; rank 1 of three has resumed
one epoch later and receives by that tag. The others are in the barrier behind.
"""

import os

import numpy as np
from mpi4py import MPI

PARTS = 10


def fetch_part(comm: MPI.Comm, epoch: int) -> np.ndarray:
    part = np.empty(PARTS)
    comm.Recv(part, source=0, tag=epoch)
    return part


def read_epoch(rank: int) -> int:
    name = f"resume-{rank}.txt"
    if os.path.exists(name):
        with open(name) as file:
            return int(file.read())
    return 0


def main() -> None:
    comm = MPI.COMM_WORLD
    rank, world = comm.Get_rank(), comm.Get_size()
    epoch = read_epoch(rank)
    if rank == 0:
        for other in range(1, world):
            comm.Send(np.ones(PARTS), dest=other, tag=epoch)
    else:
        fetch_part(comm, epoch)
    comm.Barrier()
    print(rank, "begins", flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = """mpirun --allow-run-as-root --oversubscribe --bind-to none -n 3 python train.py"""
# culprits = [[1], [0, 1]]
# waiting = [2]
# steps = ["script", "training"]
# after = ["", "MPI ready"]
# own_code = true
# busy = true
# calls = ['fetch_part', 'Recv', 'main']
# needs = ["mpi4py"]
# [files]
# "resume-1.txt" = "1"
# ///
