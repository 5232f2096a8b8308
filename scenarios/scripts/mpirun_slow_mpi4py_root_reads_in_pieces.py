"""Healthy and silent: mpi4py; rank 1 of three reads its table from a slow disk, the others wait
for it in an Allreduce, which burns their processors.
"""

import argparse
import time

import numpy as np
from mpi4py import MPI


def read_table(rows: int, seconds: float) -> np.ndarray:
    table = np.zeros(rows)
    for row in range(rows):
        time.sleep(seconds / rows)
        table[row] = row
    return table


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float)
    given = parser.parse_args()
    comm = MPI.COMM_WORLD
    table = read_table(8, given.seconds if comm.Get_rank() == 1 else 0.0)
    total = np.empty_like(table)
    comm.Allreduce(table, total)
    print(comm.Get_rank(), total.sum(), flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = """mpirun --allow-run-as-root --oversubscribe --bind-to none -n 3 python train.py \
# --seconds $AMOUNT"""
# outcome = "ok"
# amount = 40.0
# needs = ["mpi4py"]
# ///
