"""A thread reduces, the main thread waits for its event; one of the threads asks a tool.

Every rank averages in a thread of its own. That of rank 2 first has a compressor told what to do,
which reads its orders from a pipe that nobody has opened to write.
"""

import os
import queue
import subprocess
import threading

import torch
import torch.distributed as dist


class Averager(threading.Thread):
    """Takes lists of gradients, and sets the event that came with them."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        super().__init__(name="averager", daemon=True)
        self.group = group
        self.jobs: queue.Queue[tuple[list[torch.Tensor], threading.Event]] = queue.Queue()

    def submit(self, gradients: list[torch.Tensor]) -> threading.Event:
        done = threading.Event()
        self.jobs.put((gradients, done))
        return done

    def compressed(self, gradients: list[torch.Tensor], turn: int) -> list[torch.Tensor]:
        if turn == 5 and dist.get_rank() == 2:
            orders = "orders.fifo"
            if not os.path.exists(orders):
                os.mkfifo(orders)
            subprocess.run(["sh", "-c", f"read level < {orders}"], check=False)
        return gradients

    def run(self) -> None:
        turn = 0
        while True:
            gradients, done = self.jobs.get()
            works = [
                dist.all_reduce(one, group=self.group, async_op=True)
                for one in self.compressed(gradients, turn)
            ]
            for work in works:
                work.wait()
            turn += 1
            done.set()


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    averager = Averager(dist.new_group(backend="gloo"))
    averager.start()
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(10):
        model(torch.randn(8, 16)).pow(2).mean().backward()
        averager.submit([one.grad for one in model.parameters()]).wait()
        optimizer.step()
        optimizer.zero_grad()
        print(f"rank {dist.get_rank()} step {step}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py"
# culprits = [[2]]
# waiting = [0, 1, 3]
# steps = [
#   "training", "steady", "first_step", "first_backward", "first_all_reduce", "new_group",
#   "all_reduce",
# ]
# after = ["First step done", "First backward done", "First all_reduce done", "New group ready", ""]
# own_code = true
# calls = ['Event', 'wait', 'compressed', 'subprocess', 'train\.main']
# causes = ["pipe-no-writer", "child-process-stuck", "child-program", "thread-stuck"]
# ///
