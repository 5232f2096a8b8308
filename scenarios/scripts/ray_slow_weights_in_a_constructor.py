"""Healthy and slow: Ray: the second of two engines reads its weights in its constructor, shard by
shard, from a disk that takes its time for each; the driver waits in ray.get for both.

The first is ready and idle, and is asked for its version by a monitor, an actor, now and then.
"""

import sys
import time
from pathlib import Path

import ray


class SlowDisk:
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def read(self, path: Path) -> bytes:
        time.sleep(self.seconds)
        return path.read_bytes()


@ray.remote(num_cpus=0)
class Engine:
    def __init__(self, shards: int, seconds: float) -> None:
        disk = SlowDisk(seconds / max(shards, 1))
        self.weights = []
        for shard in range(shards):
            path = Path(f"/tmp/ray-slow-weights-{shard}")
            path.write_bytes(bytes(1 << 16))
            self.weights.append(disk.read(path))
            path.unlink()

    def version(self) -> int:
        return len(self.weights)


@ray.remote(num_cpus=0)
class Monitor:
    def watch(self, engine: "ray.actor.ActorHandle[Engine]", seconds: float) -> int:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            ray.get(engine.version.remote())
            time.sleep(5)
        return 0


if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False)
    seconds = float(sys.argv[1])
    engines = [Engine.remote(0, 0.0), Engine.remote(8, seconds)]
    monitor = Monitor.remote().watch.remote(engines[0], seconds)
    print(ray.get([engine.version.remote() for engine in engines]), ray.get(monitor), flush=True)

# /// case
# command = "python train.py $AMOUNT"
# outcome = "ok"
# amount = 70.0
# limit = 240.0
# needs = ["ray"]
# ///
