"""A server with four data-parallel engines: while any engine has a request, the others run a dummy
step. The word that a wave has begun comes to all; engine 2 drops it as of an old wave.

Engine 2 waits for work at its queue, the others in the all_reduce of the step. Its input thread is
alive and reads on.
"""

import argparse
import multiprocessing
import queue
import threading
from multiprocessing.connection import Connection

import setproctitle

spawn = multiprocessing.get_context("spawn")
SIZE = 4


class EngineCore:
    def __init__(self, rank: int, port: int, words: Connection, answers: Connection) -> None:
        import torch
        import torch.distributed as dist

        self.rank, self.torch, self.dist = rank, torch, dist
        self.words, self.answers = words, answers
        self.current_wave, self.running = (1 if rank == 2 else 0), False
        self.input_queue: queue.Queue[str] = queue.Queue()
        address = f"tcp://127.0.0.1:{port}"
        dist.init_process_group("gloo", init_method=address, rank=rank, world_size=SIZE)
        self.answers.send(f"engine {rank} ready")
        threading.Thread(target=self.process_input, name="input", daemon=True).start()

    def process_input(self) -> None:
        while True:
            kind, wave, prompt = self.words.recv()
            if kind == "start_wave" and wave < self.current_wave:
                continue
            self.current_wave = wave
            self.input_queue.put(prompt)

    def run_busy_loop(self) -> None:
        while True:
            prompt = self.input_queue.get()
            self.running = True
            left = 3 if prompt else 0
            while self.running:
                left = self.execute_model(left) if left else self.execute_dummy_batch()
                self.running = self.has_unfinished(left)
            if prompt:
                self.answers.send(prompt + " ...")
            self.current_wave += 1

    def execute_model(self, left: int) -> int:
        self.torch.ones(32, 32).matmul(self.torch.ones(32, 32))
        return left - 1

    def execute_dummy_batch(self) -> int:
        return 0

    def has_unfinished(self, left: int) -> bool:
        count = self.torch.tensor([left])
        self.dist.all_reduce(count)
        return bool(count.item())


def run_engine(rank: int, port: int, words: Connection, answers: Connection) -> None:
    setproctitle.setproctitle(f"minilm::EngineCore_DP{rank}")
    EngineCore(rank, port, words, answers).run_busy_loop()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    args = parser.parse_args()
    words, answers = [], []
    for rank in range(SIZE):
        (ours, theirs), (answer, sends) = spawn.Pipe(), spawn.Pipe()
        spawn.Process(target=run_engine, args=(rank, args.port, theirs, sends)).start()
        words.append(ours)
        answers.append(answer)
    print([one.recv() for one in answers], flush=True)
    words[0].send(("request", 0, "once upon a time"))
    for one in words[1:]:
        one.send(("start_wave", 0, ""))
    print(answers[0].recv(), flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --port $PORT"
# needs = ["setproctitle"]
# culprits = [[2]]
# waiting = [0, 1, 3]
# steps = ["process_group", "first_all_reduce", "script", "first_collective", "training"]
# after = ["Process group ready", "torch imported", ""]
# own_code = true
# calls = ['get', 'run_busy_loop']
# causes = ["rank-conditional-collective", "dead-producer", "nobody-sends", "uneven-rounds"]
# says = ['EngineCore|engine|all_reduce']
# ///
