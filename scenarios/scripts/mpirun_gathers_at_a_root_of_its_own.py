"""mpi4py: five ranks gather their scores at the rank that had the best one in the last round, which
rank 0 tells all; rank 2 has just had a better one of its own, and gathers at itself.

Rank 0 waits for the score of rank 2, which waits for all the others'; these are at the next round.
"""

import time

from mpi4py import MPI


class Tournament:
    def __init__(self, comm: MPI.Comm) -> None:
        self.comm, self.rank = comm, comm.Get_rank()
        self.best = 0

    def _root(self, turn: int) -> int:
        if (self.rank, turn) == (2, 5):  # a score of its own was above all that it knew
            return self.rank
        return self.best

    def play(self, turn: int) -> None:
        time.sleep(0.1)
        root = self._root(turn)
        scores = self.comm.gather((turn * 7 + self.rank) % 5, root=root)
        if scores is not None:
            print(f"round {turn}: {scores} at {root}", flush=True)
        self.best = self.comm.bcast(0, root=0)


def main() -> None:
    tournament = Tournament(MPI.COMM_WORLD)
    for turn in range(10):
        tournament.play(turn)


if __name__ == "__main__":
    main()

# /// case
# command = """mpirun --allow-run-as-root --oversubscribe --bind-to none -n 5 \
# --mca mpi_yield_when_idle 1 python train.py"""
# needs = ["mpi4py"]
# culprits = [[2], [0, 2]]
# culprits_by_stacks = [[], [0, 1, 2, 3, 4]]
# waiting = [1, 3, 4]
# steps = ["script", "mpi_init"]
# after = ["MPI ready", ""]
# own_code = true
# busy = true
# calls = ['gather', 'play', 'Tournament', 'mpi4py', 'MPI']
# causes = ["collective-mismatch", "deadlock", "rank-conditional-collective"]
# ///
