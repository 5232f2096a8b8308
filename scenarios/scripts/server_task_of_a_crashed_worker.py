"""A shell script starts a master with a queue (multiprocessing's BaseManager) and three workers as
commands of their own; worker 1 ends by SIGSEGV in its thirteenth task, the shell takes its status,
and the master waits for that task's result.

Workers 0 and 2 wait for more tasks and are whole. The shell waits for the master.
"""

import multiprocessing.managers
import queue
import sys
import threading

TASKS: queue.Queue[int] = queue.Queue()
RESULTS: queue.Queue[tuple[int, int]] = queue.Queue()


class Queues(multiprocessing.managers.BaseManager):
    pass


def main(port: int, tasks: int) -> None:
    Queues.register("tasks", lambda: TASKS)
    Queues.register("results", lambda: RESULTS)
    server = Queues(("127.0.0.1", port), b"key").get_server()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for task in range(tasks):
        TASKS.put(task)
    for done in range(tasks):
        task, result = RESULTS.get()
        print(f"{done + 1} of {tasks}: task {task} gave {result}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), 60)

# /// case
# command = "bash evaluate.sh $PORT"
# culprits = [[0], [-1]]
# steps = ["script"]
# after = [""]
# own_code = true
# ends = true
# calls = ['main', 'get', 'Queue', '^$', 'score']
# causes = ["worker-dead", "worker-killed", "killed-from-outside", "pool-worker-lost", "child-died"]
# [files]
# "evaluate.sh" = '''
# python train.py $1 &
# master=$!
# for n in 0 1 2; do python worker.py $1 $n & done
# wait $master
# '''
# "worker.py" = '''
# """Takes tasks until there are no more."""
# import multiprocessing.managers
# import os
# import signal
# import sys
# import time
#
#
# class Queues(multiprocessing.managers.BaseManager):
#     pass
#
#
# def connect(port):
#     Queues.register("tasks")
#     Queues.register("results")
#     queues = Queues(("127.0.0.1", port), b"key")
#     while True:
#         try:
#             queues.connect()
#             return queues
#         except ConnectionRefusedError:
#             time.sleep(0.2)
#
#
# def score(task, number, done):
#     time.sleep(0.5)
#     if number == 1 and done == 12:
#         os.kill(os.getpid(), signal.SIGSEGV)
#     return task * task
#
#
# def main(port, number):
#     queues = connect(port)
#     tasks, results, done = queues.tasks(), queues.results(), 0
#     while True:
#         task = tasks.get()
#         results.put((task, score(task, number, done)))
#         done += 1
#
#
# main(int(sys.argv[1]), int(sys.argv[2]))
# '''
# ///
