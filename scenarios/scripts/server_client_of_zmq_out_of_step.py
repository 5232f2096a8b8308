"""A trainer asks a rollout worker over ZeroMQ (REQ and REP). The worker raises while it handles the
third request, logs that, and opens its socket anew: to that request there is no answer any more.

The trainer waits for the answer to its request, the worker for the next one: it has bound a new
socket at the same address, and the request was taken by the old one.
"""

import multiprocessing
import traceback

import zmq


class Worker:
    def __init__(self, address: str) -> None:
        self.address, self.version = address, 0
        self.context = zmq.Context()
        self.open()

    def open(self) -> None:
        self.socket = self.context.socket(zmq.REP)
        self.socket.bind(self.address)

    def handle(self, asked: dict[str, int]) -> dict[str, float]:
        self.version += 1
        return {"reward": 6 / (3 - asked["step"])}

    def serve(self) -> None:
        while True:
            try:
                asked = self.socket.recv_json()
                self.socket.send_json(self.handle(asked))
            except ZeroDivisionError:
                traceback.print_exc()
                self.socket.close(linger=0)
                self.open()


def serve(address: str) -> None:
    Worker(address).serve()


def train(address: str, steps: int) -> float:
    asks = zmq.Context().socket(zmq.REQ)
    asks.connect(address)
    total = 0.0
    for step in range(1, steps):
        asks.send_json({"step": step})
        total += asks.recv_json()["reward"]
        print(f"step {step}: {total:.1f}", flush=True)
    return total


if __name__ == "__main__":
    address = "ipc://rollout.sock"
    worker = multiprocessing.get_context("spawn").Process(target=serve, args=(address,))
    worker.start()
    print(train(address, 8))
    worker.terminate()

# /// case
# command = "python train.py"
# culprits = [[0], [-1]]
# steps = ["script"]
# after = [""]
# own_code = true
# calls = ['recv_json', 'recv', 'train', 'serve']
# causes = ["nobody-sends", "deadlock", "child-process-stuck", "swallowed-exception"]
# says = ['nobody|wait|ZeroDivisionError|handler']
# ///
