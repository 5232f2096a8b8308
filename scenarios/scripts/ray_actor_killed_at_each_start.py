"""Ray: an engine that may be restarted without a limit is killed each time while it loads, as by
the guard of a node's memory; Ray starts it again and again.

Two trainers wait in ray.get for the engine's first answer, which Ray would ask of each new one, and
the driver waits for the trainers.
"""

import os
import signal
import time

import ray


@ray.remote(max_restarts=-1, max_task_retries=-1)
class Engine:
    def __init__(self, layers: int) -> None:
        self.layers: list[bytearray] = []
        self.load_layers(layers)

    def load_layers(self, layers: int) -> None:
        for layer in range(layers):
            self.layers.append(bytearray(1 << 20))
            time.sleep(0.2)
            if layer == 5:  # as much as the node has
                os.kill(os.getpid(), signal.SIGKILL)

    def generate(self, prompt: str) -> str:
        return f"{prompt} by {len(self.layers)} layers"


@ray.remote
class Trainer:
    def __init__(self, number: int, engine: ray.actor.ActorHandle) -> None:
        self.number, self.engine = number, engine

    def fit(self) -> str:
        return str(ray.get(self.engine.generate.remote(f"prompt {self.number}")))


def main() -> None:
    ray.init(num_cpus=4, include_dashboard=False)
    engine = Engine.remote(32)
    trainers = [Trainer.remote(number, engine) for number in range(2)]
    print(ray.get([trainer.fit.remote() for trainer in trainers]), flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# culprits = [[-1], [0]]
# steps = ["ray_get", "script"]
# after = ["Ray started", ""]
# own_code = true
# ends = true
# calls = ['ray\.get', 'load_layers', 'fit', 'generate', 'Engine', '^$']
# causes = ["restarted-in-vain", "ray-actor-died", "ray-start", "ray-task", "killed-from-outside"]
# says = ['Engine', 'start(s|ed)? again|restart|died|SIGKILL|signal 9|killed|again']
# needs = ["ray"]
# limit = 240
# ///
