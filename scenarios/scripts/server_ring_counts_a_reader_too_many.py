"""An engine writes each message for its workers into a slot of shared memory and writes the slot
again when all readers have read it. It counts four readers, for a spare that was taken out.

Its three workers have read all that came, and look for the next message; the engine looks at the
slot's flags again and again.
"""

import argparse
import multiprocessing
import time
from multiprocessing.shared_memory import SharedMemory

import setproctitle

spawn = multiprocessing.get_context("spawn")
SLOTS, SIZE = 3, 64


class Ring:
    def __init__(self, readers: int, name: str | None = None) -> None:
        self.readers = readers
        self.memory = SharedMemory(name, create=name is None, size=SLOTS * (1 + readers + SIZE))
        self.at = 0

    def _slot(self) -> int:
        return (self.at % SLOTS) * (1 + self.readers + SIZE)

    def write(self, data: bytes) -> None:
        slot, flags = self._slot(), self.memory.buf
        while flags[slot] and not all(flags[slot + 1 : slot + 1 + self.readers]):
            time.sleep(0.001)
        flags[slot] = 0
        flags[slot + 1 : slot + 1 + self.readers] = bytes(self.readers)
        start = slot + 1 + self.readers
        flags[start : start + len(data)] = data
        flags[slot] = 1
        self.at += 1

    def read(self, reader: int) -> bytes:
        slot, flags = self._slot(), self.memory.buf
        while not flags[slot] or flags[slot + 1 + reader]:
            time.sleep(0.001)
        start = slot + 1 + self.readers
        data = bytes(flags[start : start + SIZE])
        flags[slot + 1 + reader] = 1
        self.at += 1
        return data


def run_worker(rank: int, name: str, readers: int) -> None:
    setproctitle.setproctitle(f"VLLM::Worker_TP{rank}")
    ring = Ring(readers, name)
    while ring.read(rank).rstrip(b"\0") != b"end":
        pass


def run_engine(workers: int, spare: int) -> None:
    setproctitle.setproctitle("VLLM::EngineCore")
    ring = Ring(workers + spare)
    processes = []
    for rank in range(workers):
        args = (rank, ring.memory.name, ring.readers)
        processes.append(spawn.Process(target=run_worker, args=args))
        processes[-1].start()
    for number in range(8):
        ring.write(f"load layer {number}".encode())
    ring.write(b"end")
    for process in processes:
        process.join()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--spare", type=int, default=0)
    args = parser.parse_args()
    engine = spawn.Process(target=run_engine, args=(args.workers, args.spare))
    engine.start()
    engine.join()


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --workers 3 --spare 1"
# needs = ["setproctitle"]
# culprits = [[-1], []]
# waiting = [0, 1, 2]
# steps = ["script", "arguments"]
# after = ["", "Args parsed"]
# own_code = true
# busy = true
# calls = ['write', 'sleep', 'run_engine', '^$']
# causes = ["polling-loop", "child-process-stuck", "own-code-sleeps", "nobody-sends", "unknown"]
# says = ['EngineCore|run_engine|polls|sleep']
# ///
