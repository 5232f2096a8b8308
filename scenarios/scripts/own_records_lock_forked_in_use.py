"""A thread of the parent writes records with the lock of a record file while the parent forks its
evaluators: one gets a copy of the lock in the state in which the thread had it.

That evaluator waits for the lock, whose owner is no thread of its own, the parent for results;
the second evaluator has sent its own and ended.
"""

import multiprocessing
import threading
import time
from pathlib import Path


class Records:
    def __init__(self, path: str) -> None:
        self.lock, self.path = threading.Lock(), Path(path)

    def add(self, text: str, seconds: float = 0.0) -> None:
        with self.lock, self.path.open("a", encoding="utf-8") as file:
            file.write(f"{text}\n")
            time.sleep(seconds)  # the disk


records = Records("records.txt")


def evaluate(number: int, results: "multiprocessing.SimpleQueue[int]") -> None:
    if number == 1:
        time.sleep(0.5)
    else:
        records.add(f"evaluator {number} begins")
    results.put(number)


def main() -> None:
    fork = multiprocessing.get_context("fork")
    results = fork.SimpleQueue()
    writer = threading.Thread(target=records.add, args=("start of the run", 1.0))
    writer.start()
    time.sleep(0.3)
    children = [fork.Process(target=evaluate, args=(number, results)) for number in range(2)]
    for child in children:
        child.start()
    writer.join()
    print(sorted(results.get() for _ in children), flush=True)
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
# calls = ['get', 'main', 'add', 'evaluate']
# causes = ["lock-after-fork", "thread-lost-by-fork"]
# says = ['fork']
# ///
