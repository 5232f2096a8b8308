"""Two threads of rank 1 take the locks of a cache and of a log in opposite orders.

The others are in an all_gather of gloo.
"""

import os
import threading
import time

import torch
import torch.distributed as dist


class Cache:
    def __init__(self) -> None:
        self.lock, self.log = threading.Lock(), threading.Lock()
        self.rows: dict[int, int] = {}

    def put(self, key: int) -> None:
        with self.lock:
            self.rows[key] = key
            time.sleep(0.5)
            with self.log:
                print(f"put {key}", flush=True)

    def report(self) -> None:
        with self.log:
            time.sleep(0.5)
            with self.lock:
                print(f"{len(self.rows)} rows", flush=True)


def warm_up() -> None:
    cache = Cache()
    reporter = threading.Thread(target=cache.report)
    reporter.start()
    cache.put(1)
    reporter.join()


def main() -> None:
    dist.init_process_group("gloo")
    if int(os.environ["RANK"]) == 1:
        warm_up()
    sizes = [torch.zeros(1) for _ in range(dist.get_world_size())]
    dist.all_gather(sizes, torch.ones(1))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py"
# culprits = [[1]]
# waiting = [0, 2]
# steps = ["process_group", "ddp_wrap", "first_collective"]
# after = ["Process group ready", ""]
# own_code = true
# calls = ['put', 'Lock', 'acquire', 'warm_up']
# causes = ["lock-order"]
# ///
