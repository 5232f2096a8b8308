"""Dask: a task puts its batches into a Queue of one place, and the driver first gathers the task
and means to take the batches afterwards.

The second put waits for a place that only the driver could make.
"""

from distributed import Client, Queue


def produce(count: int) -> int:
    queue = Queue("batches", maxsize=1)
    for number in range(count):
        queue.put(number)
    return count


def main() -> None:
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=None) as client:
        queue = Queue("batches", maxsize=1)
        count = client.submit(produce, 3).result()
        print([queue.get() for _ in range(count)], flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# needs = ["distributed"]
# culprits = [[-1], [0]]
# steps = ["script"]
# after = [""]
# own_code = true
# calls = ['produce', 'put', 'result', 'main']
# causes = ["queue-full", "dask-task", "child-process-stuck"]
# says = ['produce|put|queue']
# ///
