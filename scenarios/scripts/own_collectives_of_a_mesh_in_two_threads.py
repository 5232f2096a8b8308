"""Two threads of each rank meet in two groups; rank 1's logging thread is behind a lock of its own.

The loop waits for the loggers by a queue; a logger takes the lock of the table, and rank 1's main
thread has it while it waits for the queue.
"""

import queue
import threading

import torch
import torch.distributed as dist


class Table:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.rows: list[float] = []

    def add(self, value: float) -> None:
        with self.lock:
            self.rows.append(value)


def log_all(
    table: Table, group: dist.ProcessGroup, wanted: "queue.Queue[float]", done: "queue.Queue[float]"
) -> None:
    while True:
        value = torch.tensor([wanted.get()])
        table.add(value.item())
        work = dist.all_reduce(value, group=group, async_op=True)
        work.wait()
        done.put(value.item())


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, logs = dist.get_rank(), dist.new_group(backend="gloo")
    table, wanted, done = Table(), queue.Queue(), queue.Queue()
    told = (table, logs, wanted, done)
    threading.Thread(target=log_all, args=told, name="logger", daemon=True).start()
    model = torch.nn.Linear(16, 1)
    for step in range(10):
        loss = model(torch.randn(8, 16)).pow(2).mean()
        loss.backward()
        for one in model.parameters():
            dist.all_reduce(one.grad)
        model.zero_grad()
        wanted.put(loss.item())
        if rank == 1 and step == 6:  # the table is written where it is full
            with table.lock:
                print(f"rank {rank}: {len(table.rows)} rows, {done.get():.3f}", flush=True)
        else:
            print(f"rank {rank} step {step}: {done.get():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py"
# culprits = [[1]]
# waiting = [0, 2, 3]
# steps = [
#   "training", "steady", "first_step", "first_backward", "first_all_reduce", "all_reduce",
#   "new_group",
# ]
# after = ["First backward done", "First all_reduce done", "New group ready", ""]
# own_code = true
# calls = ['get', 'add', 'train\.main', 'Queue']
# causes = ["deadlock", "thread-stuck", "lock-order", "self-deadlock", "dead-producer"]
# ///
