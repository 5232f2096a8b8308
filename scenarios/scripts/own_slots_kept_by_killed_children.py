"""Evaluators take one of two slots (a semaphore of multiprocessing) for the time of a run. Two of
them are killed in the middle of one, as where memory runs out, and their slots never come back.

The other two wait in acquire(), the parent for the results of all. The killed ones are its zombies.
"""

import multiprocessing
import os
import signal
import time
from multiprocessing.synchronize import Semaphore

RUNS = 4


def evaluate(number: int) -> float:
    memory = []
    for part in range(4):
        memory.append(bytearray(1 << 20))
        time.sleep(0.1)
        if number < 2 and part == 2:
            os.kill(os.getpid(), signal.SIGKILL)
    return float(len(memory))


def run(number: int, slots: Semaphore, results: "multiprocessing.SimpleQueue[float]") -> None:
    if number >= 2:
        time.sleep(1.5)  # its data is larger
    with slots:
        score = evaluate(number)
    results.put(score)


def collect(results: "multiprocessing.SimpleQueue[float]") -> list[float]:
    return [results.get() for _ in range(RUNS)]


def main() -> None:
    slots, results = multiprocessing.Semaphore(2), multiprocessing.SimpleQueue()
    children = [
        multiprocessing.Process(target=run, args=(number, slots, results), name=f"run-{number}")
        for number in range(RUNS)
    ]
    for child in children:
        child.start()
    print(collect(results), flush=True)
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
# calls = ['get', 'collect', 'acquire', 'run', '__enter__', 'evaluate']
# causes = ["dead-owner", "child-died", "worker-dead", "killed-from-outside"]
# says = ['SIGKILL|signal 9']
# ///
