"""Healthy: Ray, two actors; the second runs a simulator that says nothing for long, the first waits
for it in ray.get, and the driver for the first, again and again with a time limit.
"""

import subprocess
import sys

import ray

SIMULATOR = """
import sys, time
time.sleep(float(sys.argv[1]))
print(42)
"""


@ray.remote
class Environment:
    def step(self, seconds: float) -> int:
        words = [sys.executable, "-c", SIMULATOR, str(seconds)]
        return int(subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout)


@ray.remote
class Policy:
    def __init__(self, environment: ray.actor.ActorHandle) -> None:
        self.environment = environment

    def play(self, seconds: float) -> int:
        return ray.get(self.environment.step.remote(seconds)) + 1


if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False)
    policy = Policy.remote(Environment.remote())
    pending = [policy.play.remote(float(sys.argv[1]))]
    while pending:
        done, pending = ray.wait(pending, timeout=5)
        for one in done:
            print(ray.get(one), flush=True)
    ray.shutdown()

# /// case
# command = "python train.py $AMOUNT"
# outcome = "ok"
# amount = 50.0
# needs = ["ray"]
# ///
