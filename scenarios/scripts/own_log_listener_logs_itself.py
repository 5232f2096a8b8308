"""Rank 2's log listener warns of a slow disk through the log whose full queue it is to empty.

Its queue has room for eight records and is full: the listener's own record finds no room, and
neither does the next one of the main thread. The others are in a barrier.
"""

import logging
import logging.handlers
import multiprocessing as mp
import queue

WORLD = 4
log = logging.getLogger("train")


class Blocking(logging.handlers.QueueHandler):
    """Rather waits than loses a record."""

    def enqueue(self, record: logging.LogRecord) -> None:
        self.queue.put(record)


class Slow(logging.Handler):
    """Writes to a file, and warns of each tenth record if the disk is slow."""

    def __init__(self, name: str, slow: bool) -> None:
        super().__init__()
        self.name_of_file, self.slow, self.count = name, slow, 0

    def emit(self, record: logging.LogRecord) -> None:
        with open(self.name_of_file, "a") as file:
            file.write(self.format(record) + "\n")
        self.count += 1
        if self.slow and record.name != "train.disk":
            for part in range(3):
                log.getChild("disk").warning("record %d took long: %d", self.count, part)


def set_up(rank: int) -> logging.handlers.QueueListener:
    records: queue.Queue[logging.LogRecord] = queue.Queue(8)
    log.addHandler(Blocking(records))
    log.setLevel(logging.INFO)
    log.propagate = False
    listener = logging.handlers.QueueListener(records, Slow(f"log-{rank}.txt", rank == 2))
    listener.start()
    return listener


def train(rank: int, barrier: object) -> None:
    listener = set_up(rank)
    for step in range(3):
        for batch in range(200):
            log.info("step %d batch %d", step, batch)
        barrier.wait()
        print(f"rank {rank} step {step}", flush=True)
    listener.stop()


def main() -> None:
    context = mp.get_context("spawn")
    barrier = context.Barrier(WORLD)
    ranks = [context.Process(target=train, args=(rank, barrier)) for rank in range(WORLD)]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join()


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# culprits = [[2]]
# waiting = [0, 1, 3]
# steps = ["arguments", "script", "ranks"]
# after = ["", "Ranks started", "Python started"]
# own_code = true
# calls = ['enqueue', 'queue', 'put', 'info', 'train']
# causes = ["self-deadlock", "deadlock", "pipe-unread", "thread-stuck", "lock-order", "unknown"]
# ///
