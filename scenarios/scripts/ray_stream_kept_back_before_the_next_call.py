"""Ray: an engine streams its samples, at most two of them ahead of who reads; the trainer reads one
sample and asks the same engine for its version before it reads on.

The engine runs one call at a time: its generator waits for a reader, the question for the end of
the generator, and the trainer, which is the reader, for the answer.
"""

from __future__ import annotations

import dataclasses

import ray


@dataclasses.dataclass
class Sample:
    step: int
    tokens: list[int]


@ray.remote
class Engine:
    def __init__(self) -> None:
        self.weights_version = 0

    def sample(self, count: int):
        for step in range(count):
            yield Sample(step, list(range(step, step + 8)))

    def version(self) -> int:
        return self.weights_version


class Trainer:
    def __init__(self) -> None:
        self.engine = Engine.remote()
        self.seen = 0

    def learn(self, samples: ray.ObjectRefGenerator) -> None:
        for reference in samples:
            sample = ray.get(reference)
            if ray.get(self.engine.version.remote()) == 0:
                self.seen += len(sample.tokens)

    def run(self) -> None:
        stream = self.engine.sample.options(_generator_backpressure_num_objects=2)
        self.learn(stream.remote(32))
        print(self.seen, flush=True)


if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False)
    Trainer().run()

# /// case
# command = "python train.py"
# needs = ["ray"]
# culprits = [[0], [-1]]
# steps = ["ray_get", "script"]
# after = ["Answer of Ray there", "Ray started", ""]
# own_code = true
# calls = ['ray\.get', 'learn', 'sample']
# causes = ["ray-task", "deadlock", "unknown"]
# says = ['Engine|sample|version']
# ///
