"""A server whose leading worker starts two processes that make text of tokens; the second of these
asks for its tokenizer at a service that never answers, before it says that it is there.

The leader, rank 0 of two, waits for its word by ZeroMQ, rank 1 for the leader in a barrier, and the
proxy for the leader's word that all is ready.
"""

import multiprocessing
import sys
import urllib.request

import zmq

spawn = multiprocessing.get_context("spawn")
POSTPROCESS = 2


class PostprocWorker:
    def __init__(self, number: int, service: str) -> None:
        self.number, self.service = number, service
        self.words: list[str] = []

    def load_tokenizer(self) -> None:
        revision = "" if self.number == 0 else self.check_revision()
        self.words = f"once upon a time {revision}".split()

    def check_revision(self) -> str:
        with urllib.request.urlopen(f"{self.service}/api/models/people/small") as answer:
            return str(answer.read().decode())


def run_postprocess(number: int, service: str) -> None:
    socket = zmq.Context.instance().socket(zmq.PUSH)
    socket.connect("ipc://postprocess.sock")
    PostprocWorker(number, service).load_tokenizer()
    socket.send(b"%d" % number)
    tokens = zmq.Context.instance().socket(zmq.PULL)
    tokens.bind(f"ipc://tokens{number}.sock")
    while True:
        tokens.recv()


class GenerationExecutorWorker:
    def __init__(self, rank: int, port: int) -> None:
        import torch.distributed as dist

        self.rank, self.dist = rank, dist
        dist.init_process_group(
            "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2
        )

    def start_postprocess_workers(self, service: str) -> None:
        ready = zmq.Context.instance().socket(zmq.PULL)
        ready.bind("ipc://postprocess.sock")
        for number in range(POSTPROCESS):
            spawn.Process(
                target=run_postprocess, args=(number, service), name=f"postprocess-{number}"
            ).start()
        for _ in range(POSTPROCESS):
            ready.recv()

    def run(self, service: str) -> None:
        if self.rank == 0:
            status = zmq.Context.instance().socket(zmq.PUSH)
            status.connect("ipc://status.sock")
            self.start_postprocess_workers(service)
        self.dist.barrier()
        if self.rank == 0:
            status.send(b"ready")
        self.dist.barrier()


def run_worker(rank: int, port: int, service: str) -> None:
    GenerationExecutorWorker(rank, port).run(service)


class GenerationExecutorProxy:
    def __init__(self, port: int, service: str) -> None:
        self.status = zmq.Context.instance().socket(zmq.PULL)
        self.status.bind("ipc://status.sock")
        self.workers = [
            spawn.Process(target=run_worker, args=(rank, port, service), name=f"rank-{rank}")
            for rank in range(2)
        ]
        for one in self.workers:
            one.start()

    def wait_for_workers(self) -> None:
        print(self.status.recv().decode(), flush=True)


if __name__ == "__main__":
    proxy = GenerationExecutorProxy(int(sys.argv[1]), sys.argv[2])
    proxy.wait_for_workers()

# /// case
# command = "python train.py $PORT $SERVICE"
# world = "silent_service"
# needs = ["zmq"]
# culprits = [[0], [-1]]
# waiting = [1]
# steps = ["script", "process_group", "import_torch"]
# after = ["", "torch imported", "Process group ready"]
# own_code = true
# calls = ['urlopen', 'check_revision', 'load_tokenizer', 'recv', 'start_postprocess', 'readinto']
# says = ['check_revision|urlopen|127\.0\.0\.1:\d+', 'postprocess|python']
# ///
