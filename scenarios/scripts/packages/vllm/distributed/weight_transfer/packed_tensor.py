"""A stand-in of vllm/distributed/weight_transfer/packed_tensor.py."""


def packed_nccl_broadcast_producer(iterator, group, src, post_iter_func):
    for item in iterator:
        group.broadcast(post_iter_func(item), src=src)


def packed_nccl_broadcast_consumer(names, group, src):
    return [group.broadcast(None, src=src) for _ in names]
