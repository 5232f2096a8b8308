"""An engine sends its outputs to the API server by ZeroMQ (PUSH, PULL). The thread of the API
server that takes them met an output that it cannot decode and ended; the socket fills up to its
high-water mark, and the engine waits in send().

The API server's main thread waits for the results of a future that nobody will set. No process
died, and the traceback of the thread stands in a log file.
"""

import argparse
import concurrent.futures
import multiprocessing
import sys
import threading

import setproctitle
import zmq

spawn = multiprocessing.get_context("spawn")


def run_engine(address: str) -> None:
    setproctitle.setproctitle("textserve::EngineCore")
    out = zmq.Context.instance().socket(zmq.PUSH)
    out.setsockopt(zmq.SNDHWM, 4)
    out.connect(address)
    step = 0
    while True:
        finished = step == 50_000
        text = b"\xff" if step == 40 else b"token" * 4000
        out.send(step.to_bytes(4, "big") + bytes([finished]) + text)
        step += 1


class Client:
    def __init__(self, address: str) -> None:
        self.inputs = zmq.Context.instance().socket(zmq.PULL)
        self.inputs.setsockopt(zmq.RCVHWM, 4)
        self.inputs.bind(address)
        self.done: concurrent.futures.Future[int] = concurrent.futures.Future()
        threading.Thread(target=self.process_outputs, name="output_handler", daemon=True).start()

    def process_outputs(self) -> None:
        taken = 0
        while True:
            message = self.inputs.recv()
            taken += len(message[5:].decode())
            if message[4]:
                self.done.set_result(taken)

    def generate(self) -> int:
        return self.done.result()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--socket", default="ipc://outputs.sock")
    args = parser.parse_args()
    log = open("server.log", "w")  # noqa: SIM115 (as long as it lives)
    sys.stderr = log
    client = Client(args.socket)
    spawn.Process(target=run_engine, args=(args.socket,), daemon=True).start()
    print(client.generate(), flush=True)

# /// case
# command = "python train.py"
# needs = ["zmq", "setproctitle"]
# culprits = [[0]]
# steps = ["script", "arguments"]
# after = ["Args parsed", ""]
# own_code = true
# calls = ['generate', 'result', 'Future']
# causes = ["dead-producer", "nobody-sends", "deadlock", "swallowed-exception", "pipe-unread"]
# says = ['EngineCore']
# ///
