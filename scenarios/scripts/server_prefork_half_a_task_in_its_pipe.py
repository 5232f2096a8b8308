"""A broker writes tasks into one pipe, from which three workers read under a common lock; its
writer thread fails in the middle of a task, and the worker whose turn it is waits for the rest.

That one keeps the lock, and its siblings wait for it. The broker goes on with what it is asked for,
and the client waits for its result: the thread's error is in the log.
"""

import multiprocessing
import os
import queue
import struct
import threading

import setproctitle

fork = multiprocessing.get_context("fork")


class TaskPipe:
    """Tasks with their length before them."""

    def __init__(self) -> None:
        self.readable, self.writable = os.pipe()
        self.lock = fork.Lock()

    def put(self, parts: list[bytes]) -> None:
        os.write(self.writable, struct.pack("!i", sum(map(len, parts))))
        for part in parts:
            os.write(self.writable, part)

    def get(self) -> bytes:
        with self.lock:
            (left,) = struct.unpack("!i", os.read(self.readable, 4))
            task = b""
            while len(task) < left:
                task += os.read(self.readable, left - len(task))
            return task


def work(number: int, tasks: TaskPipe, results: multiprocessing.SimpleQueue) -> None:
    setproctitle.setproctitle(f"celeryd: worker-{number}")
    while True:
        task = tasks.get()
        results.put((number, len(task)))


class Broker:
    def __init__(self, workers: int) -> None:
        self.tasks, self.results = TaskPipe(), fork.SimpleQueue()
        self.outbox: queue.Queue[list[bytes]] = queue.Queue()
        for number in range(workers):
            fork.Process(target=work, args=(number, self.tasks, self.results), daemon=True).start()
        threading.Thread(target=self._write_tasks, name="task-writer", daemon=True).start()

    def _write_tasks(self) -> None:
        while True:
            self.tasks.put(self.outbox.get())

    def apply(self, *parts: bytes) -> int:
        self.outbox.put(list(parts))
        return self.results.get()[1]


def main() -> None:
    setproctitle.setproctitle("celeryd: MainProcess")
    broker = Broker(3)
    for size in (10, 1000, 2000):
        print(broker.apply(b"x" * size), flush=True)
    print(broker.apply(b"header", "body"), flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# needs = ["setproctitle"]
# culprits = [[0], [-1]]
# steps = ["script"]
# after = [""]
# own_code = true
# calls = ['apply', 'get', 'read', 'main']
# causes = ["dead-producer", "thread-has-raised", "child-process-stuck", "unknown"]
# says = ['thread|celeryd|pipe']
# ///
