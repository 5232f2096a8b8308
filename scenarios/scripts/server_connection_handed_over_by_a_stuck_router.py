"""A router hands its worker the connection of a client in a message; to take it out the worker
asks the router's process for the descriptor, which then computes in native code with the GIL.

The worker is inside of recv(): what it unpickles there waits for a thread of the router's that
serves such descriptors.
"""

import ctypes
import multiprocessing
import time
from multiprocessing.connection import Connection

import setproctitle

spawn = multiprocessing.get_context("spawn")


class Worker:
    """It answers each client over the client's own connection."""

    def __init__(self, inbox: Connection, ready: Connection) -> None:
        self.inbox, self.ready = inbox, ready

    def run(self) -> None:
        setproctitle.setproctitle("chatserve::worker")
        self.ready.send("ready")
        while True:
            prompt, client = self.inbox.recv()
            client.send(prompt.upper())


class Router:
    def __init__(self, outbox: Connection, clients: list[Connection]) -> None:
        self.outbox, self.clients = outbox, clients

    def run(self) -> None:
        setproctitle.setproctitle("chatserve::router")
        for number, client in enumerate(self.clients):
            prompt = client.recv()
            self.outbox.send((prompt, client))
            if number == 1:
                self.rebuild_index()
            time.sleep(1)
        client.recv()

    def rebuild_index(self) -> None:
        ctypes.PyDLL(None).sleep(1_000_000)  # an extension that keeps the GIL


def main() -> None:
    inbox, outbox = spawn.Pipe(duplex=False)
    readable, ready = spawn.Pipe(duplex=False)
    pairs = [spawn.Pipe() for _ in range(3)]
    spawn.Process(target=Worker(inbox, ready).run, daemon=True).start()
    print(readable.recv(), flush=True)
    router = Router(outbox, [theirs for _, theirs in pairs])
    spawn.Process(target=router.run, daemon=True).start()
    for number, (ours, _) in enumerate(pairs):
        ours.send(f"prompt {number}")
        print(ours.recv(), flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# needs = ["setproctitle"]
# culprits = [[-1]]
# culprits_by_stacks = [[0]]
# waiting = []
# steps = ["script"]
# after = [""]
# own_code = true
# calls = ['sleep', 'rebuild_index', 'recv', 'main']
# causes = ["gil-held", "child-process-stuck", "native-call", "worker-stuck"]
# says = ['router']
# ///
