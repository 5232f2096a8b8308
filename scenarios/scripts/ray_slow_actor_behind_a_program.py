"""Healthy and slow: Ray: the driver waits for a data actor, and that for a program which packs
shards: it reads a file piece by piece with long pauses, and says nothing before it is done.
"""

import subprocess
import sys

import ray

PACK = """
import sys, time
packed = 0
with open(sys.argv[1], "rb") as shard:
    for _ in range(20):
        packed += len(shard.read(1 << 14))
        time.sleep(float(sys.argv[2]) / 20)
print(packed)
"""


@ray.remote
class Data:
    def pack(self, path: str, seconds: float) -> int:
        words = [sys.executable, "-c", PACK, path, str(seconds)]
        return int(subprocess.run(words, capture_output=True, check=True).stdout)


@ray.remote
class Trainer:
    def __init__(self, data: "ray.actor.ActorHandle[Data]") -> None:
        self.data = data

    def fit(self, path: str, seconds: float) -> int:
        return ray.get(self.data.pack.remote(path, seconds))


def main(seconds: float) -> None:
    with open("shard.bin", "wb") as file:
        file.write(bytes(1 << 20))
    ray.init(num_cpus=3, include_dashboard=False)
    trainer = Trainer.remote(Data.remote())
    import os

    print(ray.get(trainer.fit.remote(os.path.abspath("shard.bin"), seconds)), flush=True)


if __name__ == "__main__":
    main(float(sys.argv[1]))

# /// case
# command = "python train.py $AMOUNT"
# outcome = "ok"
# needs = ["ray"]
# amount = 50.0
# limit = 300
# ///
