"""A pool of processes: the callback of the first future submits a second task and waits for it.

Callbacks run on the pool's own manager thread, which is then not there to fetch the second answer;
both workers are idle, and the main thread waits for the first callback's event.
"""

import threading
import time
from concurrent.futures import Future, ProcessPoolExecutor


def tokenize(number: int) -> int:
    time.sleep(0.5)
    return number * 2


class Pipeline:
    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self.pool, self.done, self.packed = pool, threading.Event(), 0

    def pack(self, tokenized: Future) -> None:
        self.packed = self.pool.submit(tokenize, tokenized.result()).result()
        self.done.set()


def main() -> None:
    with ProcessPoolExecutor(2) as pool:
        pipeline = Pipeline(pool)
        pool.submit(tokenize, 3).add_done_callback(pipeline.pack)
        pipeline.done.wait()
        print(pipeline.packed, flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# culprits = [[0], [-1]]
# steps = ["script"]
# after = [""]
# own_code = true
# calls = ['pack', 'main', 'result', 'wait']
# causes = ["pool-waits-for-itself", "self-deadlock"]
# says = ['pack|callback']
# ///
