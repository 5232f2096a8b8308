"""A stand-in of vllm/distributed/weight_transfer/nccl_engine.py."""

from vllm.distributed.weight_transfer.nccl_common import worker_init_process_group
from vllm.distributed.weight_transfer.packed_tensor import packed_nccl_broadcast_consumer


class NCCLWeightTransferEngine:
    def __init__(self, rank):
        self.rank = rank

    def init_transfer_engine(self, init_info):
        self.model_update_group = worker_init_process_group(init_info, self.rank)

    def receive_weights(self, update_info):
        packed_nccl_broadcast_consumer(update_info["names"], self.model_update_group, src=0)
