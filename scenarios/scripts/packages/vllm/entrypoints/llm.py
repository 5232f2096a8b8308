"""A stand-in of vllm/entrypoints/llm.py."""

from types import SimpleNamespace


def make_config(model, tensor_parallel_size, enforce_eager=False):
    parallel = SimpleNamespace(world_size=tensor_parallel_size)
    return SimpleNamespace(model=model, parallel_config=parallel, enforce_eager=enforce_eager)


class LLM:
    def __init__(self, model, tensor_parallel_size=1):
        from vllm.v1.engine.core_client import EngineCoreClient

        config = make_config(model, tensor_parallel_size)
        self.engine_core = EngineCoreClient.make_client(config)

    def generate(self, prompt):
        return self.engine_core.get_output(prompt)
