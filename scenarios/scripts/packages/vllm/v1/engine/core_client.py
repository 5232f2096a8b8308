"""A stand-in of vllm/v1/engine/core_client.py."""

import json

import zmq
import zmq.asyncio

from vllm.utils import get_open_zmq_ipc_path
from vllm.v1.engine.utils import launch_core_engines


class EngineCoreClient:
    @staticmethod
    def make_async_mp_client(vllm_config):
        return AsyncMPClient(vllm_config)

    @staticmethod
    def make_client(vllm_config):
        return SyncMPClient(vllm_config)


class MPClient(EngineCoreClient):
    def __init__(self, vllm_config):
        self.ctx = zmq.Context(io_threads=2)
        addresses = get_open_zmq_ipc_path(), get_open_zmq_ipc_path()
        self.input_socket = self.ctx.socket(zmq.ROUTER)
        self.input_socket.bind(addresses[0])
        self.output_socket = self.ctx.socket(zmq.PULL)
        self.output_socket.bind(addresses[1])
        with launch_core_engines(vllm_config, addresses) as engine_manager:
            self.engine_manager = engine_manager
        # Wait for ready messages from each engine on the input socket.
        self.identity, _ = self.input_socket.recv_multipart()

    def shutdown(self):
        for process in self.engine_manager.processes:
            process.terminate()


class AsyncMPClient(MPClient):
    def __init__(self, vllm_config):
        super().__init__(vllm_config)
        self.async_output_socket = None

    async def collective_rpc_async(self, method, kwargs):
        return await self.call_utility_async("collective_rpc", method, kwargs)

    async def call_utility_async(self, method, *args):
        if self.async_output_socket is None:
            self.async_output_socket = zmq.asyncio.Socket.shadow(self.output_socket.underlying)
        request = json.dumps([method, *args]).encode()
        self.input_socket.send_multipart([self.identity, b"UTILITY" + request])
        return await self.async_output_socket.recv()


class SyncMPClient(MPClient):
    def get_output(self, request):
        self.input_socket.send_multipart([self.identity, request.encode()])
        return self.output_socket.recv().decode()
