"""Each rank sums its loss and, in a thread, its statistics over another group; a lock is between.
Rank 2's statistics of step 2 take longer, and its main thread comes first.

Rank 2 is in the sum of the loss with its lock, all others in that of the statistics with theirs.
"""

import threading
import time

import torch
import torch.distributed as dist


class Statistics:
    """Sums what was counted, in the background, while the next batch is computed."""

    def __init__(self, one_at_a_time: threading.Lock) -> None:
        self.one_at_a_time, self.group = one_at_a_time, dist.new_group()
        self.thread: threading.Thread | None = None

    def start(self, words: int) -> None:
        self.finish()
        self.thread = threading.Thread(target=self.sum, args=(words,), name="statistics")
        self.thread.start()

    def sum(self, words: int) -> None:
        counted = self.count(words)
        with self.one_at_a_time:
            dist.all_reduce(counted, group=self.group)

    def count(self, words: int) -> torch.Tensor:
        time.sleep(words / 1000)
        return torch.full((4,), float(words))

    def finish(self) -> None:
        if self.thread is not None:
            self.thread.join()


def compute() -> torch.Tensor:
    time.sleep(0.4)
    return torch.randn(8).pow(2).mean()


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    one_at_a_time = threading.Lock()
    statistics = Statistics(one_at_a_time)
    for step in range(5):
        loss = compute()
        with one_at_a_time:
            dist.all_reduce(loss)
        statistics.start(words=1500 if rank == 2 and step == 2 else 10)
        if rank == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    statistics.finish()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py"
# culprits = [[2]]
# culprits_by_stacks = [[0, 1, 2, 3]]
# waiting = [0, 1, 3]
# steps = ["process_group", "ddp_wrap", "training", "first_all_reduce", "first_collective"]
# after = ["First all_reduce done", "New group ready", "Process group ready", ""]
# own_code = true
# calls = ['all_reduce', 'acquire', '__enter__', 'train\.main', 'Statistics']
# causes = ["collective-mismatch", "deadlock", "rank-conditional-collective", "thread-stuck"]
# ///
