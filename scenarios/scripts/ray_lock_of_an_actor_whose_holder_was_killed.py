"""Ray: three workers build one cache in turn, by a lock that is a named async actor; the one that
had it first was killed while it built, and nobody gives the lock back.

The other two wait in ray.get for acquire(), which waits in the lock's event loop; the driver waits
for the first of the three. The lock's actor is whole.
"""

import asyncio
import os
import signal
import time

import ray


@ray.remote
class CacheLock:
    def __init__(self) -> None:
        self.lock, self.holder = asyncio.Lock(), ""

    async def acquire(self, name: str) -> None:
        await self.lock.acquire()
        self.holder = name

    async def release(self) -> None:
        self.holder = ""
        self.lock.release()


@ray.remote
class Worker:
    def __init__(self, number: int, rows: int) -> None:
        self.number, self.rows = number, rows
        self.lock = ray.get_actor("cache_lock")

    def read_rows(self) -> list[int]:
        time.sleep(self.rows / 1000)
        return list(range(self.rows))

    def build_cache(self, rows: list[int]) -> int:
        if self.number == 1:  # too much for the node
            os.kill(os.getpid(), signal.SIGKILL)
        return len(rows)

    def prepare(self) -> int:
        rows = self.read_rows()
        ray.get(self.lock.acquire.remote(f"worker {self.number}"))
        size = self.build_cache(rows)
        ray.get(self.lock.release.remote())
        return size


def main() -> None:
    ray.init(num_cpus=4, include_dashboard=False)
    lock = CacheLock.options(name="cache_lock", max_concurrency=100).remote()
    workers = [Worker.remote(number, rows) for number, rows in enumerate((3000, 10, 4000))]
    asked = [worker.prepare.remote() for worker in workers]
    for number, one in enumerate(asked):
        print(f"worker {number}: {ray.get(one)} rows", flush=True)
    del lock


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# culprits = [[-1], [0]]
# steps = ["ray_get", "script"]
# after = ["Ray started", ""]
# own_code = true
# ends = true
# calls = ['ray\.get', 'prepare', 'acquire', '^$']
# causes = ["ray-actor-died", "ray-task", "dead-owner", "deadlock", "unknown"]
# says = ['CacheLock|acquire']
# needs = ["ray"]
# ///
