"""A stand-in of vllm/distributed/parallel_state.py."""

import torch


def init_distributed_environment(world_size, rank, distributed_init_method, backend="gloo"):
    torch.distributed.init_process_group(
        backend=backend, init_method=distributed_init_method, world_size=world_size, rank=rank
    )


def tensor_model_parallel_all_reduce(input_):
    torch.distributed.all_reduce(input_)
    return input_
