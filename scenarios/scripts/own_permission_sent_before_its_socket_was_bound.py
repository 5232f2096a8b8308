"""Rank 0 of four allows each rank by a datagram to go on, and takes it that a rank whose socket is
not there yet asks later; rank 2 binds its own too late and waits, the others are in a barrier of C.
"""

import contextlib
import ctypes
import mmap
import os
import socket
import time

WORLD = 4
LIBC = ctypes.CDLL(None, use_errno=True)


class Meeting:
    """pthread_barrier_t in memory that all ranks share."""

    def __init__(self, count: int) -> None:
        self.memory = mmap.mmap(-1, mmap.PAGESIZE)
        self.barrier = (ctypes.c_char * 64).from_buffer(self.memory)
        attributes = (ctypes.c_char * 16)()
        LIBC.pthread_barrierattr_init(attributes)
        LIBC.pthread_barrierattr_setpshared(attributes, 1)
        LIBC.pthread_barrier_init(self.barrier, attributes, count)

    def wait(self) -> None:
        LIBC.pthread_barrier_wait(self.barrier)


class Mailbox:
    def __init__(self, rank: int) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(f"rank-{rank}.sock")

    def allow(self, rank: int) -> None:
        with contextlib.suppress(OSError):
            self.socket.sendto(b"go on", f"rank-{rank}.sock")

    def wait_until_allowed(self) -> bytes:
        return self.socket.recv(64)


def train(rank: int, meeting: Meeting) -> None:
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(WORLD), LOCAL_RANK=str(rank))
    time.sleep(3 if rank == 2 else 0)  # a slower import
    box = Mailbox(rank)
    if rank == 0:
        time.sleep(1.5)
        for other in range(1, WORLD):
            box.allow(other)
    else:
        box.wait_until_allowed()
    meeting.wait()
    print(rank, "trains", flush=True)


def main() -> None:
    meeting = Meeting(WORLD)
    children = []
    for rank in range(WORLD):
        pid = os.fork()
        if pid == 0:
            train(rank, meeting)
            os._exit(0)
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# culprits = [[2]]
# waiting = [0, 1, 3]
# steps = ["script", "training"]
# after = [""]
# own_code = true
# calls = ['wait_until_allowed', 'recv', 'Mailbox']
# causes = ["nobody-sends", "message-left-out"]
# ///
