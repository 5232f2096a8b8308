"""Rank 0 hands out shards and is done when all are taken; the others sort theirs, each alone."""

import os
import random
import socket
import time

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
SHARDS = 2 * (WORLD - 1)


def hand_out():
    with socket.create_server(("", 9450)) as server:
        for shard in [*range(SHARDS), *[-1] * (WORLD - 1)]:
            connection, _ = server.accept()
            with connection:
                connection.sendall(str(shard).encode())


def ask():
    while True:
        try:
            with socket.create_connection((os.environ["MASTER_ADDR"], 9450)) as connection:
                return int(connection.recv(100))
        except OSError:
            time.sleep(0.2)


def sort(shards):
    seconds = float(os.environ.get("SORT_SECONDS", "5"))
    end, size = time.monotonic() + seconds, 20_000
    words = [random.random() for _ in range(size)]
    while time.monotonic() < end:
        random.shuffle(words)
        words.sort()
    return len(shards), words[0]


def work():
    shards = []
    while (shard := ask()) >= 0:
        shards.append(shard)
        time.sleep(0.3)
    sort(shards)


hand_out() if RANK == 0 else work()
