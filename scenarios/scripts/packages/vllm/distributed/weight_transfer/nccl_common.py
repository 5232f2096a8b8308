"""A stand-in of vllm/distributed/weight_transfer/nccl_common.py."""


def stateless_init_process_group(master_address, master_port, rank, world_size):
    from vllm.distributed.device_communicators.pynccl import PyNcclCommunicator
    from vllm.distributed.utils import StatelessProcessGroup

    pg = StatelessProcessGroup.create(
        host=master_address, port=master_port, rank=rank, world_size=world_size
    )
    return PyNcclCommunicator(pg)


def worker_init_process_group(init_info, rank):
    return stateless_init_process_group(
        init_info["master_address"],
        init_info["master_port"],
        init_info["rank_offset"] + rank,
        init_info["world_size"],
    )


def trainer_init(init_info, rank=0):
    return stateless_init_process_group(
        init_info["master_address"], init_info["master_port"], rank, init_info["world_size"]
    )
