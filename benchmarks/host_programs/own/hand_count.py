"""Averages parameters over plain sockets: machine 0 takes as many connections as there are others,
and then speaks with each in turn.
"""

import os
import pickle
import socket
import struct
import time

import numpy as np

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
PORT = 9400


def send(peer, message):
    data = pickle.dumps(message)
    peer.sendall(struct.pack("!I", len(data)) + data)


def receive(peer):
    (size,) = struct.unpack("!I", receive_exactly(peer, 4))
    return pickle.loads(receive_exactly(peer, size))


def receive_exactly(peer, size):
    data = b""
    while len(data) < size:
        piece = peer.recv(size - len(data))
        if not piece:
            raise ConnectionError("the other machine is gone")
        data += piece
    return data


def local_steps(weights):
    for _ in range(30):
        noise = np.random.randn(64, 64)
        weights = weights * 0.99 + (noise @ noise).mean(0)[: len(weights)] / 64
    return weights


def coordinate():
    server = socket.create_server(("", PORT))
    workers = [server.accept()[0] for _ in range(WORLD - 1)]
    names = [receive(worker)["name"] for worker in workers]
    print("workers:", names, flush=True)
    weights = np.zeros(32)
    for _ in range(50):
        for worker in workers:
            send(worker, weights)
        weights = np.mean([receive(worker) for worker in workers], axis=0)
    for worker in workers:
        send(worker, None)


def connect():
    while True:
        try:
            return socket.create_connection((os.environ["MASTER_ADDR"], PORT))
        except ConnectionRefusedError:
            time.sleep(0.5)


def work():
    coordinator = connect()
    send(coordinator, {"name": socket.gethostname()})
    while (weights := receive(coordinator)) is not None:
        send(coordinator, local_steps(weights))


coordinate() if RANK == 0 else work()
