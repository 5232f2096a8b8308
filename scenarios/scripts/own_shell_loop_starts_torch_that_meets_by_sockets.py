"""A shell starts three programs in a loop, each with its number as an argument; all use torch, and
meet over connections of their own. Number 2 opens a pipe that nobody writes to.
"""

import socket
import sys

import torch


def join(number: int, count: int, port: int) -> list[socket.socket]:
    if number == 0:
        door = socket.create_server(("127.0.0.1", port))
        return [door.accept()[0] for _ in range(count - 1)]
    while True:
        try:
            return [socket.create_connection(("127.0.0.1", port))]
        except ConnectionRefusedError:
            pass


def average(number: int, ends: list[socket.socket], gradient: torch.Tensor) -> None:
    if number == 0:
        for end in ends:
            end.recv(8)
        for end in ends:
            end.sendall(b"12345678")
    else:
        ends[0].sendall(b"12345678")
        ends[0].recv(8)


def read_shard(number: int, step: int) -> torch.Tensor:
    if number == 2 and step == 3:
        with open("shard-2.pipe") as shard:
            return torch.tensor(len(shard.read()))
    return torch.zeros(4)


def main() -> None:
    number, count, port = map(int, sys.argv[1:])
    ends = join(number, count, port)
    for step in range(6):
        average(number, ends, read_shard(number, step))


if __name__ == "__main__":
    main()

# /// case
# command = "bash start.sh"
# culprits = [[2]]
# waiting = [0, 1]
# steps = ["script"]
# after = ["torch imported"]
# own_code = true
# calls = ["open"]
# causes = ["pipe-no-writer"]
# [files]
# "start.sh" = '''
# mkfifo shard-2.pipe
# for number in 0 1 2; do
#     python -u train.py $number 3 29872 &
# done
# wait
# '''
# ///
