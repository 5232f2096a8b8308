"""A front starts an engine, which publishes READY over ZeroMQ as soon as it is up; the front builds
its tokenizer first and subscribes a second later: nobody publishes it again.

The engine waits for its first request, the front for the word that has gone by.
"""

import argparse
import multiprocessing
import time

import setproctitle
import zmq

spawn = multiprocessing.get_context("spawn")


def run_engine(events: str, requests: str) -> None:
    setproctitle.setproctitle("VLLM::EngineCore")
    context = zmq.Context()
    publisher, work = context.socket(zmq.PUB), context.socket(zmq.PULL)
    publisher.bind(events)
    work.bind(requests)
    weights = [bytearray(1 << 20) for _ in range(8)]
    publisher.send_multipart([b"state", b"READY"])
    while True:
        prompt = work.recv_string()
        publisher.send_multipart([b"text", f"{prompt} {len(weights)}".encode()])


class Front:
    def __init__(self, events: str, requests: str) -> None:
        context = zmq.Context.instance()
        self.events, self.work = context.socket(zmq.SUB), context.socket(zmq.PUSH)
        self.events.connect(events)
        self.events.setsockopt(zmq.SUBSCRIBE, b"")
        self.work.connect(requests)

    def wait_for_engine(self) -> None:
        while self.events.recv_multipart() != [b"state", b"READY"]:
            pass

    def generate(self, prompt: str) -> bytes:
        self.work.send_string(prompt)
        return self.events.recv_multipart()[1]


def build_tokenizer() -> dict[str, int]:
    time.sleep(3)
    return {f"token{n}": n for n in range(32_000)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--socket-dir", default=".")
    args = parser.parse_args()
    places = f"ipc://{args.socket_dir}/events", f"ipc://{args.socket_dir}/requests"
    spawn.Process(target=run_engine, args=places, name="EngineCore").start()
    tokens = build_tokenizer()
    front = Front(*places)
    front.wait_for_engine()
    print(front.generate("once upon a time"), len(tokens), flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# needs = ["zmq", "setproctitle"]
# culprits = [[0], [-1]]
# steps = ["script", "arguments", "engine_ready"]
# after = ["", "Args parsed"]
# own_code = true
# calls = ['recv', 'wait_for_engine']
# causes = ["nobody-sends", "deadlock", "unknown"]
# says = ['EngineCore']
# ///
