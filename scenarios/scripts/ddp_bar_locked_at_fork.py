"""Rank 1 forks its pool while a thread of its writes a line above a progress bar.

tqdm's lock is copied as it is, taken, and the thread that would give it back is not in the copy:
the pool's process waits for it when it makes its own bar, rank 1 for the pool, and the others for
rank 1 in DDP(). (tqdm/tqdm#627)
"""

import io
import multiprocessing
import threading
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from tqdm import tqdm


class SlowDisk(io.StringIO):
    """A log file on a disk that takes its time."""

    def write(self, text: str) -> int:
        time.sleep(1)
        return super().write(text)


def count_words(lines: list[str]) -> int:
    return sum(len(line.split()) for line in tqdm(lines, desc="words"))


def prepared() -> int:
    log = SlowDisk()
    reporter = threading.Thread(target=tqdm.write, args=("counting",), kwargs={"file": log})
    reporter.start()
    time.sleep(0.2)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        (words,) = pool.map(count_words, [["a b c"] * 1000])
    reporter.join()
    return int(words)


def main() -> None:
    dist.init_process_group("gloo")
    if dist.get_rank() == 1:
        print(prepared(), "words", flush=True)
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    for _ in range(4):
        model(torch.randn(4, 16)).sum().backward()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py"
# culprits = [[1]]
# waiting = [0, 2]
# steps = ["process_group", "ddp_wrap", "first_collective", "wrap"]
# after = ["Process group ready"]
# own_code = true
# calls = ['map', 'pool', 'Pool', 'count_words', 'tqdm', 'prepared']
# causes = ["lock-after-fork", "thread-lost-by-fork", "child-process-stuck", "worker-stuck"]
# ///
