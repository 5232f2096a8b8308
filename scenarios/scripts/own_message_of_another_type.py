"""Ranks get their parts by a message queue of System V, each by its own type; the dispatcher
numbers from zero and counts one of them twice: rank 2 of four waits in msgrcv().
"""

import ctypes
import multiprocessing
import os

LIBC = ctypes.CDLL(None, use_errno=True)
IPC_CREAT, IPC_RMID, WORLD = 0o1000, 0, 4


class Message(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_long), ("text", ctypes.c_char * 64))


def send(queue: int, kind: int, text: bytes) -> None:
    message = Message(kind, text)
    if LIBC.msgsnd(queue, ctypes.byref(message), 64, 0) < 0:
        raise OSError(ctypes.get_errno(), "msgsnd")


def receive(queue: int, kind: int) -> bytes:
    message = Message()
    if LIBC.msgrcv(queue, ctypes.byref(message), 64, ctypes.c_long(kind), 0) < 0:
        raise OSError(ctypes.get_errno(), "msgrcv")
    return message.text


def train(rank: int, queue: int, meeting) -> None:
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(WORLD), LOCAL_RANK=str(rank))
    part = receive(queue, rank + 1)
    meeting.wait()
    print(rank, part.decode(), flush=True)


def main() -> None:
    queue = LIBC.msgget(0, IPC_CREAT | 0o600)
    meeting = multiprocessing.Barrier(WORLD)
    ranks = [
        multiprocessing.Process(target=train, args=(rank, queue, meeting)) for rank in range(WORLD)
    ]
    for one in ranks:
        one.start()
    for number in (1, 2, 2, 4):
        send(queue, number, f"part {number}".encode())
    for one in ranks:
        one.join()
    LIBC.msgctl(queue, IPC_RMID, None)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# culprits = [[2]]
# waiting = [0, 1, 3]
# steps = ["script", "training"]
# after = [""]
# own_code = true
# calls = ['receive', 'msgrcv']
# ///
