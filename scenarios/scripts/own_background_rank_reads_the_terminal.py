"""A starter has a terminal of its own (pty) and starts its ranks in the background; rank 0 of three
asks whether it may go on, and the kernel stops it: only the foreground may read there.
"""

import multiprocessing
import os
import pty
import sys

WORLD = 3


def train(rank: int, meeting) -> None:
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(WORLD), LOCAL_RANK=str(rank))
    if rank == 0:
        print("a checkpoint is there: go on with it? ", end="", flush=True)
        with open("/dev/tty") as terminal:
            terminal.readline()
    meeting.wait()
    print(rank, "trains", flush=True)


def in_background(rank: int, meeting) -> None:
    os.setpgid(0, 0)
    train(rank, meeting)


def start_ranks() -> None:
    meeting = multiprocessing.Barrier(WORLD)
    ranks = [
        multiprocessing.Process(target=in_background, args=(rank, meeting)) for rank in range(WORLD)
    ]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join()


def main() -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        start_ranks()
        os._exit(0)
    while True:
        try:
            said = os.read(terminal, 4096)
        except OSError:
            break
        sys.stdout.buffer.write(said)
        sys.stdout.flush()
    os.waitpid(pid, 0)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# culprits = [[0]]
# waiting = [1, 2]
# steps = ["script", "training"]
# after = [""]
# own_code = true
# calls = ['train', 'readline', 'read', 'input']
# causes = ["stopped", "prompt"]
# ///
