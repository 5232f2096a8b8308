"""A lock for many readers or one writer, which prefers writers: rank 2 of four reads, and reads
once more within, while its refresher waits to write.

The second read waits for the writer, the writer for the first read to end.
"""

import contextlib
import threading
import time
from collections.abc import Iterator

import torch
import torch.distributed as dist


class ReadWriteLock:
    """Many may read, or one write; who comes to read waits for those who want to write."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._readers = 0
        self._writers_waiting = 0
        self._writing = False

    @contextlib.contextmanager
    def read(self) -> Iterator[None]:
        with self._changed:
            while self._writing or self._writers_waiting:
                self._changed.wait()
            self._readers += 1
        try:
            yield
        finally:
            with self._changed:
                self._readers -= 1
                self._changed.notify_all()

    @contextlib.contextmanager
    def write(self) -> Iterator[None]:
        with self._changed:
            self._writers_waiting += 1
            while self._writing or self._readers:
                self._changed.wait()
            self._writers_waiting -= 1
            self._writing = True
        try:
            yield
        finally:
            with self._changed:
                self._writing = False
                self._changed.notify_all()


class Negatives:
    """Hard negatives, drawn by every step and replaced by a thread beside it."""

    def __init__(self, every: float) -> None:
        self.lock = ReadWriteLock()
        self.table = torch.randn(256, 16)
        self.every = every
        threading.Thread(target=self._refresh, name="refresher", daemon=True).start()

    def _refresh(self) -> None:
        while True:
            time.sleep(self.every)
            with self.lock.write():
                self.table = torch.randn(256, 16)

    def hardest(self, query: torch.Tensor) -> torch.Tensor:
        with self.lock.read():
            return self.table[(query @ self.table.T).argmax(1)]

    def batch(self, queries: torch.Tensor, mine: int) -> torch.Tensor:
        with self.lock.read():
            best = [self.table[(queries @ self.table.T).argmax(1)]]
            for _ in range(mine):
                time.sleep(0.6)  # mines among neighbours
                best.append(self.hardest(queries))
        return torch.stack(best).mean(0)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    negatives = Negatives(every=2.0)
    weight = torch.zeros(16, requires_grad=True)
    for step in range(40):
        queries = torch.randn(8, 16)
        found = negatives.batch(queries, mine=3 if rank == 2 else 0)
        loss = ((queries - found) * weight).sum(1).pow(2).mean() + weight.sum()
        loss.backward()
        dist.all_reduce(weight.grad)
        with torch.no_grad():
            weight -= 0.01 * weight.grad
        weight.grad = None
        print(f"rank {rank} step {step}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py"
# culprits = [[2]]
# waiting = [0, 1, 3]
# steps = [
#   "training", "steady", "process_group", "first_backward", "first_all_reduce", "all_reduce",
# ]
# after = ["Process group ready", "First backward done", "First all_reduce done", ""]
# own_code = true
# calls = ['hardest', 'batch', 'read', 'wait', '__enter__']
# causes = ["nobody-notifies", "deadlock", "thread-stuck"]
# ///
