"""A stand-in of sglang/srt/model_executor/model_runner.py."""

import torch

from sglang.srt.utils import remote_code


class ModelRunner:
    def __init__(self, server_args, gpu_id, tp_rank, nccl_port):
        self.server_args, self.tp_rank, self.dist_port = server_args, tp_rank, nccl_port
        self.init_torch_distributed()
        self.load_model()
        self.init_memory_pool()
        self.init_device_graphs()

    def init_torch_distributed(self):
        torch.set_num_threads(1)
        remote_code(self.server_args.model_path, "init_device", self.tp_rank)
        torch.distributed.init_process_group(
            backend="gloo",
            init_method=f"tcp://127.0.0.1:{self.dist_port}",
            world_size=self.server_args.tp_size,
            rank=self.tp_rank,
        )

    def load_model(self):
        remote_code(self.server_args.model_path, "weights", self.tp_rank)
        torch.distributed.barrier()  # as monitored_barrier there: a rank that loads is waited for

    def init_memory_pool(self):
        remote_code(self.server_args.model_path, "memory_pool", self.tp_rank)

    def init_device_graphs(self):
        remote_code(self.server_args.model_path, "graphs", self.tp_rank)
