"""Four simulators meet at a barrier of a multiprocessing.Manager after each step, with their
parent; the third is killed by a signal in its second step.

The barrier waits for five and gets four: the other simulators and the parent wait in their proxies
for the manager's threads, which wait in the barrier. The killed one is a zombie of the parent's.
"""

import ctypes
import multiprocessing
import time
from multiprocessing.managers import SyncManager

SIMULATORS = 4


class Simulator:
    def __init__(self, index: int) -> None:
        self.index, self.state = index, [0.0] * 128

    def step(self, number: int) -> float:
        self.state = [0.5 * value + number for value in self.state]
        if self.index == 2 and number == 1:
            ctypes.string_at(0)  # a fault of a native library
        return sum(self.state)


def simulate(index: int, steps: int, barrier: object, results: object) -> None:
    simulator = Simulator(index)
    for number in range(steps):
        results[index] = simulator.step(number)
        barrier.wait()


def main() -> None:
    with multiprocessing.Manager() as manager:
        assert isinstance(manager, SyncManager)
        barrier = manager.Barrier(SIMULATORS + 1)
        results = manager.dict()
        children = [
            multiprocessing.Process(
                target=simulate, args=(index, 10, barrier, results), name=f"simulator-{index}"
            )
            for index in range(SIMULATORS)
        ]
        for child in children:
            child.start()
        began = time.monotonic()
        for number in range(10):
            barrier.wait()
            took = time.monotonic() - began
            print(f"step {number}: {sum(results.values()):.1f} after {took:.2f} s", flush=True)
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
# ends = true
# calls = ['wait', 'main', '^$', 'step', 'simulate']
# causes = ["child-died", "worker-dead", "killed-from-outside", "rank-died", "manager-waits"]
# says = ['SIGSEGV|signal 11|zombie|ended|killed']
# ///
