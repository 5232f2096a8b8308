"""Each rank waits at an eventfd until its parent lets it go; rank 2 of four has forked a writer
that drains the same one, and takes the only count.
"""

import multiprocessing
import os
import time

WORLD = 4


class Gate:
    """A counter in the kernel, which processes share by inheritance."""

    def __init__(self) -> None:
        self.fd = os.eventfd(0)

    def open(self) -> None:
        os.eventfd_write(self.fd, 1)

    def pass_through(self) -> None:
        os.eventfd_read(self.fd)


def write_notes(gate: Gate) -> None:
    gate.pass_through()  # writes what is there, each time the gate opens
    while True:
        time.sleep(3600)


def train(rank: int, gates: list[Gate], meeting) -> None:
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(WORLD), LOCAL_RANK=str(rank))
    if rank == 2 and os.fork() == 0:
        write_notes(gates[rank])
    time.sleep(3)
    gates[rank].pass_through()
    meeting.wait()
    print(rank, "trains", flush=True)


def main() -> None:
    context = multiprocessing.get_context("fork")
    gates, meeting = [Gate() for _ in range(WORLD)], context.Barrier(WORLD)
    ranks = [
        context.Process(target=train, args=(rank, gates, meeting), name=f"rank-{rank}")
        for rank in range(WORLD)
    ]
    for one in ranks:
        one.start()
    time.sleep(1)
    for gate in gates:
        gate.open()
    for one in ranks:
        one.join()


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# culprits = [[2]]
# waiting = [0, 1, 3]
# steps = ["script", "training"]
# after = [""]
# own_code = true
# calls = ['pass_through', 'eventfd_read', 'Gate']
# ///
