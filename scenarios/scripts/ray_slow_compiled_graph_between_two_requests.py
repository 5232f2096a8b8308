"""Healthy and slow: Ray: a compiled graph of two actors; its second request takes the model long,
and then the driver prepares the third for long, while both actors ask their channels for it.
"""

import sys
import time

import ray
from ray.dag import InputNode


def compute(seconds: float) -> int:
    end, rounds = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        rounds += sum(range(1000)) % 7
    return rounds


@ray.remote
class Tokenizer:
    def encode(self, prompt: str) -> list[int]:
        return [ord(letter) for letter in prompt]


@ray.remote
class Model:
    def __init__(self, seconds: float) -> None:
        self.seconds, self.calls = seconds, 0

    def forward(self, tokens: list[int]) -> int:
        self.calls += 1
        return compute(self.seconds if self.calls == 2 else 0.1) + len(tokens)


def main(seconds: float) -> None:
    ray.init(num_cpus=3, include_dashboard=False)
    tokenizer, model = Tokenizer.remote(), Model.remote(seconds)
    with InputNode() as prompt:
        dag = model.forward.bind(tokenizer.encode.bind(prompt))
    graph = dag.experimental_compile()
    for number in range(3):
        if number == 2:
            compute(seconds)
        print(ray.get(graph.execute(f"request {number}"), timeout=-1), flush=True)
    graph.teardown()


if __name__ == "__main__":
    main(float(sys.argv[1]))

# /// case
# command = "python train.py $AMOUNT"
# needs = ["ray"]
# outcome = "ok"
# amount = 40.0
# limit = 280.0
# ///
