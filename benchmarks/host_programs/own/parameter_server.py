"""A parameter server with threads on the last machine; workers push gradients and get weights."""

import os
import pickle
import queue
import socket
import socketserver
import struct
import threading
import time

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
SERVER, PORT, STEPS = WORLD - 1, 9440, 4000


def send(connection, what):
    body = pickle.dumps(what)
    connection.sendall(struct.pack("!I", len(body)) + body)


def receive(file):
    head = file.read(4)
    return pickle.loads(file.read(struct.unpack("!I", head)[0])) if head else None


class Weights:
    def __init__(self):
        self.values = {"layer": 0.0, "bias": 0.0}
        self.updates = queue.Queue()
        threading.Thread(target=self.apply, name="updater", daemon=True).start()

    def apply(self):
        while True:
            gradients, answer = self.updates.get()
            for name, gradient in gradients.items():
                self.values[name] -= 0.01 * gradient
            answer.put(dict(self.values))

    def push(self, gradients):
        answer = queue.Queue()
        self.updates.put((gradients, answer))
        return answer.get()


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        while (gradients := receive(self.rfile)) is not None:
            send(self.connection, self.server.weights.push(gradients))
        self.server.gone.release()


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
    gone = threading.Semaphore(0)


def serve():
    with Server(("", PORT), Handler) as server:
        server.weights = Weights()
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for _ in range(WORLD - 1):
            server.gone.acquire()
        server.shutdown()


def connect():
    while True:
        try:
            return socket.create_connection((os.environ["SERVER_HOST"], PORT))
        except ConnectionRefusedError:
            time.sleep(0.2)


def gradients_of(step, weights):
    found = {"layer": weights["layer"] - step % 7, "bias": weights["bias"] + 1.0}
    if os.path.exists("/tmp/unfreeze") and step > 300:
        found["embedding"] = 0.5
    return found


def work():
    weights = {"layer": 0.0, "bias": 0.0}
    with connect() as connection, connection.makefile("rb") as file:
        for step in range(STEPS):
            send(connection, gradients_of(step, weights))
            weights = receive(file)


serve() if RANK == SERVER else work()
