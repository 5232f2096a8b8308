"""Healthy and slow: a loader decompresses the buckets of a model one after the other and pushes
each over ZeroMQ to the first of two workers, which hands it on to the second; both wait in between.
"""

import bz2
import multiprocessing
import sys

import setproctitle
import zmq

spawn = multiprocessing.get_context("spawn")
BUCKETS = 6


def load(seed: bytes, rounds: int) -> None:
    setproctitle.setproctitle("weightserve::loader")
    pushes = zmq.Context.instance().socket(zmq.PUSH)
    pushes.connect("ipc://weights.sock")
    for _ in range(BUCKETS):
        for _ in range(rounds):
            bucket = bz2.decompress(seed)
        pushes.send(bucket[: 1 << 20])
    pushes.close()
    zmq.Context.instance().term()


def work(number: int, pipe, done) -> None:
    setproctitle.setproctitle(f"weightserve::worker_TP{number}")
    if number == 0:
        pulls = zmq.Context.instance().socket(zmq.PULL)
        pulls.bind("ipc://weights.sock")
    size = 0
    for _ in range(BUCKETS):
        bucket = pulls.recv() if number == 0 else pipe.recv_bytes()
        if number == 0:
            pipe.send_bytes(bucket)
        size += len(bucket)
    done.put((number, size))


def main(rounds: int) -> None:
    setproctitle.setproctitle("weightserve::launcher")
    first, second = spawn.Pipe()
    done = spawn.SimpleQueue()
    workers = [
        spawn.Process(target=work, args=(number, pipe, done))
        for number, pipe in enumerate((first, second))
    ]
    seed = bz2.compress(bytes(range(256)) * (1 << 14))
    workers.append(spawn.Process(target=load, args=(seed, rounds)))
    for one in workers:
        one.start()
    for _ in range(2):
        print(done.get(), flush=True)
    for one in workers:
        one.join()


if __name__ == "__main__":
    main(int(float(sys.argv[1])))

# /// case
# command = "python train.py $AMOUNT"
# needs = ["zmq", "setproctitle"]
# outcome = "ok"
# amount = 60.0
# limit = 280.0
# ///
