"""Rank 1 of three ends its prefetching process with terminate() and joins it; the child has the
handler of SIGTERM of its parent, which only notes that a checkpoint is due.
"""

import contextlib
import multiprocessing
import signal
import time

import torch
import torch.distributed as dist


class Preemption:
    due = False

    def __init__(self) -> None:
        signal.signal(signal.SIGTERM, self._note)

    def _note(self, number: int, frame: object) -> None:
        self.due = True


def prefetch(queue) -> None:
    number = 0
    while True:
        queue.put(torch.full((4,), float(number)).tolist())
        number += 1


@contextlib.contextmanager
def prefetched(batches: int):
    context = multiprocessing.get_context("fork")
    queue = context.Queue(maxsize=2)
    child = context.Process(target=prefetch, args=(queue,), daemon=True)
    child.start()
    try:
        yield (queue.get() for _ in range(batches))
    finally:
        time.sleep(0.5)
        child.terminate()
        child.join()


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    notice = Preemption() if rank == 1 else None  # the leader of its node hears the scheduler
    with prefetched(6) as batches:
        for batch in batches:
            summed = torch.tensor(batch)
            dist.all_reduce(summed)
    if notice and notice.due:
        print("save", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py"
# culprits = [[1]]
# waiting = [0, 2]
# steps = ["training", "collectives", "first_all_reduce", "script"]
# after = ["First all_reduce done", ""]
# own_code = true
# calls = ['join', 'prefetched']
# causes = ["child-process-stuck", "child-at-exit"]
# ///
