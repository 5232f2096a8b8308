"""Tasks and results go through the queues of a manager that the first machine serves over TCP."""

import multiprocessing
import os
import queue
import time
from multiprocessing.managers import BaseManager

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
TASKS, RESULTS = queue.Queue(), queue.Queue()


class Queues(BaseManager):
    pass


def give_tasks():
    return TASKS


def give_results():
    return RESULTS


def tokenize(text):
    if text.startswith("broken"):
        os._exit(137)
    return len(text.split())


def serve():
    Queues.register("tasks", callable=give_tasks)
    Queues.register("results", callable=give_results)
    manager = Queues(address=("", 9430), authkey=b"tasks")
    manager.start()
    tasks, results = manager.tasks(), manager.results()
    for number in range(30):
        for worker in range(1, WORLD):
            tasks.put((worker, number))
        for _ in range(1, WORLD):
            results.get()
    manager.shutdown()


def connect():
    Queues.register("tasks")
    Queues.register("results")
    manager = Queues(address=(os.environ["MASTER_ADDR"], 9430), authkey=b"tasks")
    while True:
        try:
            manager.connect()
            return manager.tasks(), manager.results()
        except ConnectionRefusedError:
            time.sleep(0.2)


def work():
    tasks, results = connect()
    with open("/tmp/texts.txt") as file:
        texts = file.read().splitlines()
    with multiprocessing.Pool(2) as pool:
        for _ in range(30):
            _, number = tasks.get()
            results.put(sum(pool.map(tokenize, texts[number * 4 : number * 4 + 4])))


if __name__ == "__main__":
    serve() if RANK == 0 else work()
