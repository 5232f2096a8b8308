"""A stand-in of vllm/v1/worker/gpu_model_runner.py."""

from vllm.utils import remote_code


class GPUModelRunner:
    def __init__(self, vllm_config, rank):
        self.vllm_config, self.rank = vllm_config, rank

    def capture_model(self):
        remote_code(self.vllm_config.model, "capture", self.rank)
