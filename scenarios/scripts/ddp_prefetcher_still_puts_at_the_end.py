"""All ranks have trained; rank 2's prefetching thread still has batches, and is no daemon.

Rank 2's shard is longer than the number of steps: its thread waits in put() for room in a queue
that nobody reads any more, and Python waits for the thread. The other ranks have ended, and
torchrun waits for rank 2.
"""

import queue
import threading

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = 12


class Prefetcher:
    """Loads batches ahead of the training, two at most."""

    def __init__(self, batches: int) -> None:
        self.ready: queue.Queue[torch.Tensor] = queue.Queue(2)
        self.thread = threading.Thread(target=self._load, args=(batches,), name="prefetcher")
        self.thread.start()

    def _load(self, batches: int) -> None:
        for number in range(batches):
            self.ready.put(torch.full((4, 16), number / batches))

    def next(self) -> torch.Tensor:
        return self.ready.get()


def main() -> None:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = Prefetcher(STEPS + 8 if dist.get_rank() == 2 else STEPS)
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(data.next()).pow(2).mean().backward()
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()
    print("trained", flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py"
# culprits = [[2]]
# waiting = [0, 1]
# steps = ["training", "steady", "teardown", "exit", "end"]
# after = ["Barrier passed", "First step done", ""]
# own_code = true
# calls = ['_shutdown', 'put$', '_load', 'join']
# causes = ["thread-at-exit"]
# ///
