"""Healthy and slow: Ray: a generator computes each sample for long and streams it; the trainer
waits for the next one, and a second actor, which keeps the buffer, has nothing to do meanwhile.
"""

import sys
import time

import ray


def compute(seconds: float) -> int:
    end, rounds = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        rounds += sum(range(1000)) % 7
    return rounds


@ray.remote
class Generator:
    def samples(self, count: int, seconds: float):
        for number in range(count):
            compute(seconds)
            yield number


@ray.remote
class Buffer:
    def __init__(self) -> None:
        self.kept: list[int] = []

    def add(self, sample: int) -> int:
        self.kept.append(sample)
        return len(self.kept)


def main(seconds: float) -> None:
    ray.init(num_cpus=2, include_dashboard=False)
    generator, buffer = Generator.remote(), Buffer.remote()
    for sample in generator.samples.options(num_returns="streaming").remote(3, seconds):
        print(ray.get(buffer.add.remote(sample)), flush=True)


if __name__ == "__main__":
    main(float(sys.argv[1]))

# /// case
# command = "python train.py $AMOUNT"
# needs = ["ray"]
# outcome = "ok"
# amount = 30.0
# limit = 240.0
# ///
