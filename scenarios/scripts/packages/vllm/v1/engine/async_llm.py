"""A stand-in of vllm/v1/engine/async_llm.py."""


class AsyncLLM:
    def __init__(self, vllm_config):
        from vllm.v1.engine.core_client import EngineCoreClient

        self.world_size = vllm_config.parallel_config.world_size
        self.engine_core = EngineCoreClient.make_async_mp_client(vllm_config)

    @classmethod
    def from_vllm_config(cls, vllm_config):
        return cls(vllm_config)

    async def collective_rpc(self, method, kwargs):
        await self.engine_core.collective_rpc_async(method, kwargs)

    async def init_weight_transfer_engine(self, init_info):
        await self.collective_rpc("init_weight_transfer_engine", {"init_info": init_info})

    async def update_weights(self, update_info):
        await self.collective_rpc("update_weights", {"update_info": update_info})

    def shutdown(self):
        self.engine_core.shutdown()
