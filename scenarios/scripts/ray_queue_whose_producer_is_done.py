"""Ray: two trainers take batches from a ray.util.queue.Queue until a mark comes for each; the
producer puts one mark for both, and the second trainer waits for ever for its own.

The producer has returned and is idle, the first trainer too. The driver waits for the trainers.
"""

import time

import ray
from ray.util.queue import Queue


@ray.remote
class Producer:
    def __init__(self, queue: Queue, rows: int) -> None:
        self.queue, self.rows = queue, rows

    def produce(self) -> int:
        for row in range(self.rows):
            self.queue.put(float(row))
        self.queue.put(None)
        return self.rows


@ray.remote
class Trainer:
    def __init__(self, queue: Queue) -> None:
        self.queue, self.total = queue, 0.0

    def next_batch(self) -> float | None:
        batch = self.queue.get(block=True)
        assert batch is None or isinstance(batch, float)
        return batch

    def fit(self) -> float:
        while (batch := self.next_batch()) is not None:
            self.total += batch
            time.sleep(0.02)
        return self.total


def main() -> None:
    ray.init(num_cpus=4, include_dashboard=False)
    queue = Queue(maxsize=8)
    producer = Producer.remote(queue, 40)
    trainers = [Trainer.remote(queue) for _ in range(2)]
    produced = producer.produce.remote()
    fits = [trainer.fit.remote() for trainer in trainers]
    print(ray.get(produced), "batches", flush=True)
    print(ray.get(fits), flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# culprits = [[-1], [0]]
# steps = ["ray_get", "script"]
# after = ["Ray started", "Answer of Ray there", ""]
# own_code = true
# calls = ['ray\.get', 'next_batch', 'fit', 'get']
# causes = ["ray-task", "nobody-sends", "queue-empty", "unknown"]
# says = ['Trainer|_QueueActor', 'fit|get']
# needs = ["ray"]
# ///
