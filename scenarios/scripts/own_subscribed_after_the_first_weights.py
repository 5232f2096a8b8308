"""A learner sends weights over ZeroMQ's PUB to four ranks and takes their gradients. Rank 2 builds
an index after it has said hello, and subscribes when the first weights have been sent already.

It waits for version 1, the others for version 2, and the learner for the gradient of rank 2.
"""

import functools
import json
import multiprocessing
import os
import time

import zmq

WORLD = 4


class Weights:
    """Versions of the weights, as the learner sends them."""

    @functools.cached_property
    def _socket(self) -> zmq.Socket:
        socket = zmq.Context.instance().socket(zmq.SUB)
        socket.setsockopt(zmq.SUBSCRIBE, b"")
        socket.connect("ipc://weights.sock")
        return socket

    def _messages(self):
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        while True:
            poller.poll()
            yield json.loads(self._socket.recv())

    def of(self, version: int) -> list[float]:
        return next(one["weights"] for one in self._messages() if one["version"] == version)


def build_index(rank: int) -> None:
    if rank == 2:  # its shard is the large one
        time.sleep(4)


def train(rank: int) -> None:
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(WORLD), LOCAL_RANK=str(rank))
    gives = zmq.Context.instance().socket(zmq.PUSH)
    gives.connect("ipc://gradients.sock")
    gives.send_json({"rank": rank, "hello": True})
    build_index(rank)
    weights = Weights()
    for version in range(1, 9):
        now = weights.of(version)
        gives.send_json({"rank": rank, "version": version, "gradient": [0.1 * x for x in now]})
        print(f"rank {rank} version {version}", flush=True)


def learn() -> None:
    context = zmq.Context.instance()
    sends, takes = context.socket(zmq.PUB), context.socket(zmq.PULL)
    sends.bind("ipc://weights.sock")
    takes.bind("ipc://gradients.sock")
    ranks = [
        multiprocessing.get_context("spawn").Process(target=train, args=(rank,))
        for rank in range(WORLD)
    ]
    for one in ranks:
        one.start()
    for _ in ranks:
        takes.recv_json()
    time.sleep(1)  # until they have subscribed
    weights = [1.0] * 8
    for version in range(1, 9):
        sends.send_json({"version": version, "weights": weights})
        for _ in ranks:
            gradient = takes.recv_json()["gradient"]
            weights = [a - b for a, b in zip(weights, gradient, strict=True)]
    for one in ranks:
        one.join()


if __name__ == "__main__":
    learn()

# /// case
# command = "python train.py"
# culprits = [[2]]
# culprits_by_stacks = [[], [0, 1, 2, 3], [-1]]
# waiting = [0, 1, 3]
# steps = ["script", "training"]
# after = [""]
# own_code = true
# calls = ['poll', 'recv', '_messages', 'Weights', 'train\.of']
# causes = ["nobody-sends", "other-round", "deadlock", "unknown"]
# ///
