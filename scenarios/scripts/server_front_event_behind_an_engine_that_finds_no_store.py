"""A front waits for an Event, which a thread of it sets once the engine has said over its pipe that
it is up; the engine asks for the store of its cache at a port at which nobody listens, for ever.

The front's main thread is in Event.wait, the thread in recv.
"""

import argparse
import multiprocessing
import socket
import threading
import time
from multiprocessing.connection import Connection

import setproctitle

spawn = multiprocessing.get_context("spawn")


def connect_to_store(port: int) -> socket.socket:
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:
            time.sleep(1)


def run_engine(front: Connection, port: int) -> None:
    setproctitle.setproctitle("chat::engine")
    store = connect_to_store(port)
    store.sendall(b"hello")
    front.send("up")
    front.recv()


class Front:
    def __init__(self, port: int) -> None:
        self.pipe, theirs = spawn.Pipe()
        self.engine = spawn.Process(target=run_engine, args=(theirs, port), daemon=True)
        self.engine.start()
        theirs.close()
        self.up = threading.Event()
        threading.Thread(target=self.listen, name="engine-listener", daemon=True).start()

    def listen(self) -> None:
        while True:
            word = self.pipe.recv()
            if word == "up":
                self.up.set()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--store-port", type=int, required=True)
    args = parser.parse_args()
    front = Front(args.store_port)
    print("waiting for the engine", flush=True)
    front.up.wait()
    print("up", flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --store-port $PORT"
# needs = ["setproctitle"]
# culprits = [[0], [-1]]
# steps = ["script", "arguments"]
# after = ["", "Args parsed"]
# own_code = true
# calls = ['wait', 'recv', 'listen', 'main', 'connect_to_store', 'sleep']
# causes = [
#   "endpoint-unserved", "endpoint-unreachable", "retry-loop", "polling-loop",
#   "service-unreachable", "thread-stuck", "own-code-sleeps", "child-process-stuck",
# ]
# says = ['engine|connect_to_store']
# ///
