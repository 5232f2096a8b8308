"""Ray: a task that works for a while has both processors of the node, and an actor that is made
meanwhile gets its place when the task is done; the driver waits in ray.get: healthy.
"""

import sys
import time

import ray


@ray.remote(num_cpus=2)
def prepare(seconds: float) -> int:
    end, total = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        total += sum(ord(letter) for letter in "once upon a time" * 500)
    return total


@ray.remote(num_cpus=1)
class Trainer:
    def fit(self) -> int:
        return 7


def main() -> None:
    ray.init(num_cpus=2, include_dashboard=False)
    prepared = prepare.remote(float(sys.argv[1]))
    ray.wait([prepared], timeout=3)  # until it has begun
    trainer = Trainer.remote()
    print("fitted:", ray.get(trainer.fit.remote()), ray.get(prepared) > 0, flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py $AMOUNT"
# outcome = "ok"
# amount = 60.0
# needs = ["ray"]
# limit = 150
# ///
