"""Ray: a compiled graph of a tokenizer, a model and a writer; the model reads the adapter of its
third request from a pipe into which nobody writes.

The driver waits for the graph's output, the two others for the next value of their channels: what
the actor runs is the loop of the graph, in a thread of its own.
"""

import sys

import ray
from ray.dag import InputNode


@ray.remote
class Tokenizer:
    def encode(self, prompt: str) -> list[int]:
        return [ord(letter) for letter in prompt]


@ray.remote
class Model:
    def __init__(self, adapters: str) -> None:
        self.adapters, self.calls = adapters, 0

    def forward(self, tokens: list[int]) -> list[int]:
        self.calls += 1
        if self.calls == 3:
            with open(self.adapters) as adapter:
                tokens = [*tokens, len(adapter.read())]
        return tokens[::-1]


@ray.remote
class Writer:
    def decode(self, tokens: list[int]) -> str:
        return "".join(map(chr, tokens))


def build(adapters: str):
    tokenizer, model, writer = Tokenizer.remote(), Model.remote(adapters), Writer.remote()
    with InputNode() as prompt:
        dag = writer.decode.bind(model.forward.bind(tokenizer.encode.bind(prompt)))
    return dag.experimental_compile(), (tokenizer, model, writer)


def main(adapters: str) -> None:
    ray.init(num_cpus=4, include_dashboard=False)
    graph, actors = build(adapters)
    for number in range(10):
        print(ray.get(graph.execute(f"request {number}"), timeout=-1), flush=True)
    graph.teardown()
    del actors


if __name__ == "__main__":
    main(sys.argv[1])

# /// case
# command = "python train.py $FIFO"
# world = "unopened_fifo"
# needs = ["ray"]
# culprits = [[-1]]
# waiting = [0]
# steps = ["ray_get", "script"]
# after = ["Answer of Ray there", "Ray started", ""]
# own_code = true
# calls = ['open', 'forward']
# causes = ["pipe-no-writer", "ray-task"]
# says = ['Model|forward|pipe']
# ///
