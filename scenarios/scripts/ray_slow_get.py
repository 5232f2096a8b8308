"""A driver waits in ray.get for an actor of Ray that works for a while: healthy."""

import sys
import time

import ray


@ray.remote
class Tokenizer:
    def tokenize(self, seconds: float) -> int:
        end, count = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            count += sum(ord(c) for c in "once upon a time" * 1000)
        return count


if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False)
    print(ray.get(Tokenizer.remote().tokenize.remote(float(sys.argv[1]))) > 0)

# /// case
# command = "python train.py $AMOUNT"
# outcome = "ok"
# amount = 60.0
# needs = ["ray"]
# ///
