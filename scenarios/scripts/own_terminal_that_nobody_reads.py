"""A starter gives its ranks a terminal (pty) so that they print bars, and waits for their end
before it reads: rank 0 of three fills the terminal with its log, the others are in a Barrier.
"""

import multiprocessing
import os
import pty

WORLD = 3


def train(rank: int, meeting) -> None:
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(WORLD), LOCAL_RANK=str(rank))
    for step in range(50):
        if rank == 0:
            for part in range(20):
                print(f"step {step:4} part {part:3} loss {1 / (1 + step + part):8.5f}", flush=True)
        meeting.wait()


def start_ranks() -> None:
    meeting = multiprocessing.Barrier(WORLD)
    ranks = [multiprocessing.Process(target=train, args=(r, meeting)) for r in range(WORLD)]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join()


def main() -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        start_ranks()
        os._exit(0)
    os.waitpid(pid, 0)
    print(len(os.read(terminal, 1 << 20)), "bytes of a log", flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# culprits = [[0]]
# waiting = [1, 2]
# steps = ["script", "training"]
# after = [""]
# own_code = true
# calls = ['print', 'train', 'write']
# causes = ["pipe-unread", "socket-unread"]
# ///
