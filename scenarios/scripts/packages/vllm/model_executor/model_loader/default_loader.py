"""A stand-in of vllm/model_executor/model_loader/default_loader.py."""

from vllm.model_executor.model_loader.weight_utils import download_weights_from_hf
from vllm.utils import remote_code


class DefaultModelLoader:
    def load_model(self, model, rank):
        self.load_weights(model, rank)

    def load_weights(self, model, rank):
        lock = remote_code(model, "weights", rank)
        if lock:
            download_weights_from_hf(lock)
