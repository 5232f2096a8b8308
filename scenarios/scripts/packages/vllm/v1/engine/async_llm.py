"""A stand-in of vllm/v1/engine/async_llm.py."""


class AsyncLLM:
    def __init__(self, vllm_config):
        from vllm.v1.engine.core_client import EngineCoreClient

        self.engine_core = EngineCoreClient.make_async_mp_client(vllm_config)

    @classmethod
    def from_vllm_config(cls, vllm_config):
        return cls(vllm_config)

    def shutdown(self):
        self.engine_core.shutdown()
