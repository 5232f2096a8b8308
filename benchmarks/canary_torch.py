"""Meetings of torch, for canary_rank.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from canary_meetings import (
    FOLDER,
    LIMIT,
    PEER,
    RANK,
    add_calls,
    make_model,
    make_ones,
    make_two,
    named,
)


def _store() -> Any:
    return dist.distributed_c10d._get_default_store()


def _exchange() -> None:
    operations = [
        dist.P2POp(dist.isend, make_ones(), PEER),
        dist.P2POp(dist.irecv, make_ones(), PEER),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()


@named("torch.functional all_reduce")
def _reduce_functionally() -> Iterator[None]:
    import torch.distributed._functional_collectives as functional

    def reduce() -> None:
        functional.wait_tensor(functional.all_reduce(make_ones(), "sum", dist.group.WORLD))

    reduce()  # the first time, it imports
    yield
    reduce()


def _work_wait() -> None:
    work = dist.all_reduce(make_ones(), async_op=True)
    assert work is not None
    work.wait()


def _get_key_of_peer(call: str) -> None:
    store = _store()
    store.set(f"canary/{call}/{RANK}", "1")
    key = f"canary/{call}/{PEER}"
    store.get(key) if call == "get" else store.wait([key], LIMIT)


def _elastic_barrier() -> None:
    from torch.distributed.elastic.utils import store

    store.barrier(_store(), world_size=2, key_prefix="canary/elastic", barrier_timeout=600)


def _elastic_synchronize() -> None:
    from torch.distributed.elastic.utils import store

    store.synchronize(_store(), b"1", RANK, 2, "canary/synchronize", 600)


add_calls(
    "torch",
    {
        "init_process_group": lambda: dist.init_process_group("gloo", timeout=LIMIT),
        "new_group": lambda: dist.new_group([0, 1]),
        "barrier": dist.barrier,
        "monitored_barrier": lambda: dist.monitored_barrier(timeout=LIMIT),
        "all_reduce": lambda: dist.all_reduce(make_ones()),
        "all_gather": lambda: dist.all_gather(make_two(), make_ones()),
        "all_gather_into_tensor": lambda: dist.all_gather_into_tensor(torch.zeros(8), make_ones()),
        "broadcast": lambda: dist.broadcast(make_ones(), 1),
        "reduce": lambda: dist.reduce(make_ones(), 0),
        "gather": lambda: dist.gather(make_ones(), make_two() if RANK == 0 else None),
        "scatter": lambda: dist.scatter(make_ones(), make_two() if RANK == 1 else None, src=1),
        "reduce_scatter": lambda: dist.reduce_scatter(torch.zeros(4), make_two()),
        "all_to_all_single": lambda: dist.all_to_all_single(torch.zeros(4), make_ones()),
        "recv": lambda: dist.recv(make_ones(), PEER) if RANK == 0 else dist.send(make_ones(), PEER),
        "batch_isend_irecv": _exchange,
        "all_gather_object": lambda: dist.all_gather_object([None, None], "x"),
        "broadcast_object_list": lambda: dist.broadcast_object_list(["x"], src=1),
        "gather_object": lambda: dist.gather_object("x", [None, None] if RANK == 0 else None),
        "Work.wait": _work_wait,
        "Store.get": lambda: _get_key_of_peer("get"),
        "Store.wait": lambda: _get_key_of_peer("wait"),
        "elastic barrier": _elastic_barrier,
        "elastic synchronize": _elastic_synchronize,
    },
)


@named("torch.DistributedDataParallel")
def _wrap() -> Iterator[None]:
    from torch.nn.parallel import DistributedDataParallel

    DistributedDataParallel(make_model())  # the first time, it imports
    yield
    DistributedDataParallel(make_model())


@named("torch.backward")
def _backward() -> Iterator[None]:
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(torch.nn.Linear(4, 4))
    loss = model(make_ones()).sum()
    yield
    loss.backward()


@named("torch.FSDP forward")
def _sharded_forward() -> Iterator[None]:
    from torch.distributed.fsdp import FullyShardedDataParallel

    model = FullyShardedDataParallel(torch.nn.Linear(4, 4), device_id=torch.device("cpu"))
    model(torch.ones(2, 4)).sum().backward()  # the first time, it imports
    yield
    model(torch.ones(2, 4)).sum().backward()


@named("torch.fully_shard forward")
def _sharded_2_forward() -> Iterator[None]:
    from torch.distributed.fsdp import fully_shard

    model = torch.nn.Linear(4, 4)
    fully_shard(model)
    model(torch.ones(2, 4)).sum().backward()  # the first time, it imports
    yield
    model(torch.ones(2, 4)).sum().backward()


@named("torch.checkpoint.save")
def _save() -> Iterator[None]:
    import torch.distributed.checkpoint as checkpoint

    checkpoint.save({"weight": make_ones()}, checkpoint_id=FOLDER / "first")  # it imports
    yield
    checkpoint.save({"weight": make_ones()}, checkpoint_id=FOLDER / "second")


@named("torch.Join")
def _join() -> Iterator[None]:
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(torch.nn.Linear(4, 4))
    yield
    with model.join():
        model(make_ones()).sum().backward()


@named("torch.rpc.init_rpc")
def _init_rpc() -> Iterator[None]:
    from torch.distributed import rpc

    options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{FOLDER}/rpc", rpc_timeout=600)
    yield
    rpc.init_rpc(f"worker{RANK}", rank=RANK, world_size=2, rpc_backend_options=options)


@named("torch.rpc.shutdown")
def _shutdown_rpc() -> Iterator[None]:
    from torch.distributed import rpc

    yield
    rpc.shutdown()
