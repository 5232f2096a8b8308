"""An engine of three schedulers and a detokenizer over ZeroMQ: the first scheduler waits for the
text of its last batch before it sends the next one, the detokenizer waits for a batch of two.

The first scheduler takes only what is there in time, so a batch has one request and not two: it
waits for the detokenizer, which waits for it. The other schedulers wait for the first one in a
broadcast, the tokenizer's process for the text.
"""

import argparse
import multiprocessing
import tempfile

import setproctitle
import zmq

spawn = multiprocessing.get_context("spawn")
WORLD = 3


class Scheduler:
    def __init__(self, rank: int, port: int, folder: str) -> None:
        import torch.distributed as dist

        self.rank, self.dist = rank, dist
        address = f"tcp://127.0.0.1:{port}"
        dist.init_process_group("gloo", init_method=address, rank=rank, world_size=WORLD)
        if rank == 0:
            context = zmq.Context()
            self.requests = context.socket(zmq.PULL)
            self.requests.bind(f"ipc://{folder}/requests")
            self.tokens = context.socket(zmq.PUSH)
            self.tokens.connect(f"ipc://{folder}/tokens")
            self.texts = context.socket(zmq.PULL)
            self.texts.bind(f"ipc://{folder}/texts")

    def receive_requests(self) -> list[str]:
        batch: list[list[str] | None] = [None]
        if self.rank == 0:
            batch[0] = [self.requests.recv_pyobj()]
        self.dist.broadcast_object_list(batch, src=0)
        return batch[0] or []

    def event_loop(self) -> None:
        while True:
            batch = self.receive_requests()
            if self.rank == 0:
                self.tokens.send_pyobj([(one, [ord(c) for c in one]) for one in batch])
                self.flushed = self.texts.recv_pyobj()


class Detokenizer:
    def __init__(self, folder: str, batch_size: int) -> None:
        context = zmq.Context()
        self.tokens = context.socket(zmq.PULL)
        self.tokens.bind(f"ipc://{folder}/tokens")
        self.texts = context.socket(zmq.PUSH)
        self.texts.connect(f"ipc://{folder}/texts")
        self.batch_size = batch_size

    def event_loop(self) -> None:
        while True:
            held: list[tuple[str, list[int]]] = []
            while len(held) < self.batch_size:
                held += self.tokens.recv_pyobj()
            self.texts.send_pyobj([name + "".join(map(chr, tokens)) for name, tokens in held])


def run_scheduler(rank: int, port: int, folder: str) -> None:
    setproctitle.setproctitle(f"minilm::scheduler_TP{rank}")
    Scheduler(rank, port, folder).event_loop()


def run_detokenizer(folder: str) -> None:
    setproctitle.setproctitle("minilm::detokenizer")
    Detokenizer(folder, 2).event_loop()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    args = parser.parse_args()
    folder = tempfile.mkdtemp()
    children = [
        spawn.Process(target=run_scheduler, args=(rank, args.port, folder)) for rank in range(WORLD)
    ]
    children.append(spawn.Process(target=run_detokenizer, args=(folder,)))
    for child in children:
        child.start()
    requests = zmq.Context.instance().socket(zmq.PUSH)
    requests.connect(f"ipc://{folder}/requests")
    for prompt in ("warm up", "once upon", "a time"):
        requests.send_pyobj(prompt)
    print("warming up", flush=True)
    for child in children:
        child.join()


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --port $PORT"
# needs = ["zmq", "setproctitle"]
# culprits = [[0], [-1]]
# waiting = [1, 2]
# steps = ["process_group", "broadcast", "script", "training", "first_collective"]
# after = [
#   "Process group ready", "First broadcast done", "First broadcast_object_list done",
#   "Args parsed", "torch imported", "",
# ]
# own_code = true
# calls = ['recv', 'event_loop']
# causes = ["deadlock", "nobody-sends", "server-process-stuck"]
# says = ['detokenizer']
# ///
