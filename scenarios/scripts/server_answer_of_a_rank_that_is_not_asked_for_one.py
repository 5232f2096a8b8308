"""An engine and its two workers talk over shared memory, and all of them poll it; for a request
without a logprob the last worker answers, and the engine reads the slot of the first one.

Nobody stands still in a call: each sleeps for some milliseconds between two looks at its slot.
"""

import multiprocessing
import struct
import time
from multiprocessing.shared_memory import SharedMemory

import setproctitle

spawn = multiprocessing.get_context("spawn")
SLOT = struct.Struct("=qq")  # how many messages so far, and the last one


class Slots:
    def __init__(self, name: str | None = None) -> None:
        self.memory = SharedMemory(name, create=name is None, size=256)

    def write(self, slot: int, value: int) -> None:
        count, _ = SLOT.unpack_from(self.memory.buf, slot * SLOT.size)
        SLOT.pack_into(self.memory.buf, slot * SLOT.size, count + 1, value)

    def read(self, slot: int, seen: int) -> tuple[int, int]:
        while True:
            count, value = SLOT.unpack_from(self.memory.buf, slot * SLOT.size)
            if count > seen:
                return count, value
            time.sleep(0.005)


def work(rank: int, name: str) -> None:
    setproctitle.setproctitle(f"shmserve::Worker_TP{rank}")
    slots, seen = Slots(name), 0
    while True:
        seen, tokens = slots.read(0, seen)
        answering = 0 if tokens % 2 else 1  # a request with logprobs has an odd number
        if rank == answering:
            slots.write(1 + rank, tokens * 2)


def run_engine(pipe) -> None:
    setproctitle.setproctitle("shmserve::EngineCore")
    slots, seen = Slots(), 0
    for rank in range(2):
        spawn.Process(target=work, args=(rank, slots.memory.name), daemon=True).start()
    while True:
        slots.write(0, pipe.recv())
        seen, answer = slots.read(1, seen)
        pipe.send(answer)


def main() -> None:
    ours, theirs = spawn.Pipe()
    spawn.Process(target=run_engine, args=(theirs,)).start()
    theirs.close()
    for tokens in (1, 3, 4):
        ours.send(tokens)
        print(ours.recv(), flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# needs = ["setproctitle"]
# culprits = [[-1], [0], []]
# steps = ["script"]
# after = [""]
# own_code = true
# busy = true
# calls = ['recv', 'read', 'run_engine', 'main', 'sleep']
# causes = ["polling-loop", "child-process-stuck", "own-code-sleeps", "nobody-sends"]
# says = ['EngineCore|run_engine|polls|sleep']
# ///
