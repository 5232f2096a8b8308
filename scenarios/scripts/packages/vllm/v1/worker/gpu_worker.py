"""A stand-in of vllm/v1/worker/gpu_worker.py."""

import torch

from vllm.distributed.parallel_state import (
    init_distributed_environment,
    tensor_model_parallel_all_reduce,
)
from vllm.distributed.weight_transfer.nccl_engine import NCCLWeightTransferEngine
from vllm.model_executor.model_loader.default_loader import DefaultModelLoader
from vllm.model_executor.warmup.kernel_warmup import kernel_warmup
from vllm.utils import remote_code
from vllm.v1.worker.gpu_model_runner import GPUModelRunner


class Worker:
    def __init__(self, vllm_config, local_rank, rank, distributed_init_method):
        self.vllm_config = vllm_config
        self.local_rank = local_rank
        self.rank = rank
        self.distributed_init_method = distributed_init_method
        self.model_runner = GPUModelRunner(vllm_config, rank)
        self.weight_transfer_engine = NCCLWeightTransferEngine(rank)

    def init_device(self):
        torch.set_num_threads(1)
        remote_code(self.vllm_config.model, "init_device", self.rank)
        init_worker_distributed_environment(
            self.vllm_config, self.rank, self.distributed_init_method, self.local_rank
        )

    def load_model(self):
        DefaultModelLoader().load_model(self.vllm_config.model, self.rank)

    def determine_available_memory(self):
        remote_code(self.vllm_config.model, "profile", self.rank)
        return tensor_model_parallel_all_reduce(torch.ones(1)).item()

    def initialize_from_config(self):
        remote_code(self.vllm_config.model, "kv_cache", self.rank)

    def compile_or_warm_up_model(self):
        kernel_warmup(self)
        if not self.vllm_config.enforce_eager:
            self.model_runner.capture_model()

    def init_weight_transfer_engine(self, init_info):
        self.weight_transfer_engine.init_transfer_engine(init_info)

    def update_weights(self, update_info):
        self.weight_transfer_engine.receive_weights(update_info)

    def execute_model(self, request):
        return request


def init_worker_distributed_environment(vllm_config, rank, distributed_init_method, local_rank):
    init_distributed_environment(
        vllm_config.parallel_config.world_size, rank, distributed_init_method, "gloo"
    )
