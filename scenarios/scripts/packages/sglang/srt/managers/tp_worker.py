"""A stand-in of sglang/srt/managers/tp_worker.py."""

from sglang.srt.model_executor.model_runner import ModelRunner


class TpModelWorker:
    def __init__(self, server_args, gpu_id, tp_rank, nccl_port):
        self.model_runner = ModelRunner(server_args, gpu_id, tp_rank, nccl_port)
