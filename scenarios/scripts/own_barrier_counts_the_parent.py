"""Four workers of multiprocessing meet at a Barrier before each round; it was made for five, as the
parent took part in an earlier version. The parent does not: it waits for the first result.

All four workers wait at the barrier; nobody is missing, and nobody else will come.
"""

import multiprocessing
from multiprocessing.synchronize import Barrier

WORKERS = 4


def simulate(index: int, barrier: Barrier, results: "multiprocessing.Queue[float]") -> None:
    state = [float(index)] * 64
    for number in range(5):
        barrier.wait()
        state = [0.5 * value + number for value in state]
        results.put(sum(state))


def gather(results: "multiprocessing.Queue[float]", count: int) -> list[float]:
    return [results.get() for _ in range(count)]


def main() -> None:
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(WORKERS + 1), context.Queue()
    children = [
        context.Process(target=simulate, args=(index, barrier, results), name=f"worker-{index}")
        for index in range(WORKERS)
    ]
    for child in children:
        child.start()
    print(f"{sum(gather(results, 5 * WORKERS)):.1f}", flush=True)
    for child in children:
        child.join()


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# culprits = [[0], [-1]]
# steps = ["script"]
# after = [""]
# own_code = true
# calls = ['get', 'gather', 'wait', 'simulate']
# causes = ["deadlock", "child-process-stuck", "thread-stuck", "barrier-of-too-many", "unknown"]
# says = ['Barrier']
# ///
