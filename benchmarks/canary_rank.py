"""A rank that enters the known meetings of libraries, one after another, as it is told.

    RANK=0 WORLD_SIZE=2 ... python benchmarks/canary_rank.py     started by canaries.py

It reads lines from stdin: `ready NAME` has it prepare a meeting, together with the other rank,
`go` has it enter. It answers with a line each: `ready`, `done`, or `failed` and why. Between two
lines it waits in read(), which is no call of any library.

A meeting is a generator: what stands before its `yield` prepares it, what stands after it enters.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

Meeting = Callable[[], Iterator[None]]
MEETINGS: dict[str, Meeting] = {}
RANK = int(os.environ["RANK"])
PEER = 1 - RANK
FOLDER = Path(os.environ["CANARY_FOLDER"])
LIMIT = timedelta(minutes=10)


def _named(name: str) -> Callable[[Meeting], Meeting]:
    def add(meeting: Meeting) -> Meeting:
        MEETINGS[name] = meeting
        return meeting

    return add


def _add_calls(library: str, calls: dict[str, Callable[[], Any]]) -> None:
    """Add meetings that are one call, with nothing to prepare."""
    for name, call in calls.items():

        def enter(call: Callable[[], Any] = call) -> Iterator[None]:
            yield
            call()

        MEETINGS[f"{library}.{name}"] = enter


def _ones() -> torch.Tensor:
    return torch.ones(4)


def _two() -> list[torch.Tensor]:
    return [torch.zeros(4), torch.zeros(4)]


def _store() -> Any:
    return dist.distributed_c10d._get_default_store()


# torch ------------------------------------------------------------------------------------


def _exchange() -> None:
    operations = [dist.P2POp(dist.isend, _ones(), PEER), dist.P2POp(dist.irecv, _ones(), PEER)]
    for work in dist.batch_isend_irecv(operations):
        work.wait()


@_named("torch.functional all_reduce")
def _reduce_functionally() -> Iterator[None]:
    import torch.distributed._functional_collectives as functional

    def reduce() -> None:
        functional.wait_tensor(functional.all_reduce(_ones(), "sum", dist.group.WORLD))

    reduce()  # the first time, it imports
    yield
    reduce()


def _work_wait() -> None:
    work = dist.all_reduce(_ones(), async_op=True)
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


_add_calls(
    "torch",
    {
        "init_process_group": lambda: dist.init_process_group("gloo", timeout=LIMIT),
        "new_group": lambda: dist.new_group([0, 1]),
        "barrier": dist.barrier,
        "monitored_barrier": lambda: dist.monitored_barrier(timeout=LIMIT),
        "all_reduce": lambda: dist.all_reduce(_ones()),
        "all_gather": lambda: dist.all_gather(_two(), _ones()),
        "all_gather_into_tensor": lambda: dist.all_gather_into_tensor(torch.zeros(8), _ones()),
        "broadcast": lambda: dist.broadcast(_ones(), 1),
        "reduce": lambda: dist.reduce(_ones(), 0),
        "gather": lambda: dist.gather(_ones(), _two() if RANK == 0 else None),
        "scatter": lambda: dist.scatter(_ones(), _two() if RANK == 1 else None, src=1),
        "reduce_scatter": lambda: dist.reduce_scatter(torch.zeros(4), _two()),
        "all_to_all_single": lambda: dist.all_to_all_single(torch.zeros(4), _ones()),
        "recv": lambda: dist.recv(_ones(), PEER) if RANK == 0 else dist.send(_ones(), PEER),
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


def _model() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))


@_named("torch.DistributedDataParallel")
def _wrap() -> Iterator[None]:
    from torch.nn.parallel import DistributedDataParallel

    DistributedDataParallel(_model())  # the first time, it imports
    yield
    DistributedDataParallel(_model())


@_named("torch.backward")
def _backward() -> Iterator[None]:
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(torch.nn.Linear(4, 4))
    loss = model(_ones()).sum()
    yield
    loss.backward()


@_named("torch.FSDP forward")
def _sharded_forward() -> Iterator[None]:
    from torch.distributed.fsdp import FullyShardedDataParallel

    model = FullyShardedDataParallel(torch.nn.Linear(4, 4), device_id=torch.device("cpu"))
    model(torch.ones(2, 4)).sum().backward()  # the first time, it imports
    yield
    model(torch.ones(2, 4)).sum().backward()


@_named("torch.fully_shard forward")
def _sharded_2_forward() -> Iterator[None]:
    from torch.distributed.fsdp import fully_shard

    model = torch.nn.Linear(4, 4)
    fully_shard(model)
    model(torch.ones(2, 4)).sum().backward()  # the first time, it imports
    yield
    model(torch.ones(2, 4)).sum().backward()


@_named("torch.checkpoint.save")
def _save() -> Iterator[None]:
    import torch.distributed.checkpoint as checkpoint

    checkpoint.save({"weight": _ones()}, checkpoint_id=FOLDER / "first")  # it imports
    yield
    checkpoint.save({"weight": _ones()}, checkpoint_id=FOLDER / "second")


@_named("torch.Join")
def _join() -> Iterator[None]:
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(torch.nn.Linear(4, 4))
    yield
    with model.join():
        model(_ones()).sum().backward()


@_named("torch.rpc.init_rpc")
def _init_rpc() -> Iterator[None]:
    from torch.distributed import rpc

    options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{FOLDER}/rpc", rpc_timeout=600)
    yield
    rpc.init_rpc(f"worker{RANK}", rank=RANK, world_size=2, rpc_backend_options=options)


@_named("torch.rpc.shutdown")
def _shutdown_rpc() -> Iterator[None]:
    from torch.distributed import rpc

    yield
    rpc.shutdown()


# accelerate -------------------------------------------------------------------------------

_kept: dict[str, Any] = {}  # what several meetings use: by name


def _accelerator() -> Any:
    from accelerate import Accelerator

    if "accelerator" not in _kept:
        _kept["accelerator"] = Accelerator(cpu=True)
    return _kept["accelerator"]


_ACCELERATOR: dict[str, Callable[[Any], Any]] = {
    "wait_for_everyone": lambda one: one.wait_for_everyone(),
    "gather": lambda one: one.gather(_ones()),
    "gather_for_metrics": lambda one: one.gather_for_metrics(_ones()),
    "reduce": lambda one: one.reduce(_ones()),
    "pad_across_processes": lambda one: one.pad_across_processes(torch.ones(3 + RANK)),
    "prepare": lambda one: one.prepare(_model()),
}


def _enter_accelerator(call: Callable[[Any], Any]) -> Meeting:
    def meeting() -> Iterator[None]:
        one = _accelerator()
        call(one)  # the first time, it imports
        yield
        call(one)

    return meeting


for _name, _call in _ACCELERATOR.items():
    MEETINGS[f"accelerate.{_name}"] = _enter_accelerator(_call)


def _utility(name: str, *arguments: Any) -> Meeting:
    def meeting() -> Iterator[None]:
        _accelerator()
        from accelerate import utils

        yield
        getattr(utils, name)(*arguments)

    return meeting


MEETINGS["accelerate.gather_object"] = _utility("gather_object", ["x"])
MEETINGS["accelerate.broadcast"] = _utility("broadcast", _ones(), 1)
MEETINGS["accelerate.broadcast_object_list"] = _utility("broadcast_object_list", ["x"], 1)


@_named("accelerate.main_process_first")
def _accelerate_main_first() -> Iterator[None]:
    one = _accelerator()
    yield
    with one.main_process_first():
        pass


@_named("accelerate.backward")
def _accelerate_backward() -> Iterator[None]:
    one = _accelerator()
    model = one.prepare(torch.nn.Linear(4, 4))
    loss = model(_ones()).sum()
    yield
    one.backward(loss)


# transformers -----------------------------------------------------------------------------


def _arguments() -> Any:
    from transformers import TrainingArguments

    return TrainingArguments(
        output_dir=str(FOLDER / "trainer"),
        use_cpu=True,
        max_steps=2,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        per_device_train_batch_size=2,
    )


def _trainer() -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer

    small = GPT2Config(vocab_size=16, n_positions=8, n_embd=8, n_layer=1, n_head=1)
    row: Any = {name: torch.ones(4, dtype=torch.long) for name in ("input_ids", "labels")}
    return Trainer(
        model=GPT2LMHeadModel(small),
        args=_arguments(),
        train_dataset=[row] * 16,
        eval_dataset=[row] * 8,
    )


@_named("transformers.main_process_first")
def _main_first() -> Iterator[None]:
    arguments = _arguments()
    assert arguments.world_size == 2
    yield
    with arguments.main_process_first():
        pass


@_named("transformers.Trainer.train")
def _train() -> Iterator[None]:
    trainer = _trainer()
    yield
    trainer.train()


@_named("transformers.Trainer.evaluate")
def _evaluate() -> Iterator[None]:
    trainer = _trainer()
    yield
    trainer.evaluate()


# Lightning --------------------------------------------------------------------------------


def _lightning() -> tuple[Any, Any, Any]:
    """Return a trainer, its module and its data."""
    import pytorch_lightning as pl
    from torch.utils.data import DataLoader

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 4)

        def training_step(self, batch: torch.Tensor) -> torch.Tensor:
            return self.layer(batch).sum()

        def validation_step(self, batch: torch.Tensor) -> None:
            self.log("loss", self.layer(batch).sum(), sync_dist=True)

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    trainer = pl.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_steps=2,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        limit_val_batches=1,
    )
    rows: Any = [_ones() for _ in range(8)]
    return trainer, Module(), DataLoader(rows, batch_size=2)


_TRAINER: dict[str, Callable[[Any, Any, Any], Any]] = {
    "Trainer.fit": lambda trainer, module, data: trainer.fit(module, data, data),
    "Trainer.validate": lambda trainer, module, data: trainer.validate(module, data, verbose=False),
    "Trainer.save_checkpoint": lambda trainer, module, data: trainer.save_checkpoint(
        FOLDER / "lightning.ckpt"
    ),
    "strategy.barrier": lambda trainer, module, data: trainer.strategy.barrier("canary"),
    "strategy.broadcast": lambda trainer, module, data: trainer.strategy.broadcast("x", src=1),
    "strategy.reduce": lambda trainer, module, data: trainer.strategy.reduce(_ones()),
    "strategy.all_gather": lambda trainer, module, data: trainer.strategy.all_gather(_ones()),
}


def _enter_trainer(call: Callable[[Any, Any, Any], Any], fitted: bool) -> Meeting:
    def meeting() -> Iterator[None]:
        if fitted:
            if "lightning" not in _kept:
                _kept["lightning"] = _lightning()
                trainer, module, data = _kept["lightning"]
                trainer.fit(module, data)
            yield
            call(*_kept["lightning"])
            return
        fresh = _lightning()
        yield
        call(*fresh)

    return meeting


for _of, _entered in _TRAINER.items():
    _fitted = _of not in ("Trainer.fit", "Trainer.validate")
    MEETINGS[f"lightning.{_of}"] = _enter_trainer(_entered, _fitted)


def _fabric() -> Any:
    from lightning_fabric import Fabric

    if "fabric" not in _kept:
        _kept["fabric"] = Fabric(accelerator="cpu", devices=2, strategy="ddp")
        _kept["fabric"].launch()
    return _kept["fabric"]


_FABRIC: dict[str, Callable[[Any], Any]] = {
    "barrier": lambda fabric: fabric.barrier(),
    "all_gather": lambda fabric: fabric.all_gather(_ones()),
    "all_reduce": lambda fabric: fabric.all_reduce(_ones()),
    "broadcast": lambda fabric: fabric.broadcast("x", src=1),
    "setup": lambda fabric: fabric.setup(_model()),
    "save": lambda fabric: fabric.save(str(FOLDER / "fabric.ckpt"), {"weight": _ones()}),
}


def _enter_fabric(call: Callable[[Any], Any]) -> Meeting:
    def meeting() -> Iterator[None]:
        fabric = _fabric()
        call(fabric)  # the first time, it imports
        yield
        call(fabric)

    return meeting


for _method, _done in _FABRIC.items():
    MEETINGS[f"lightning.Fabric.{_method}"] = _enter_fabric(_done)


@_named("lightning.Fabric.rank_zero_first")
def _rank_zero_first() -> Iterator[None]:
    fabric = _fabric()
    yield
    with fabric.rank_zero_first():
        pass


@_named("lightning.Fabric.backward")
def _fabric_backward() -> Iterator[None]:
    fabric = _fabric()
    model = fabric.setup(torch.nn.Linear(4, 4))
    loss = model(_ones()).sum()
    yield
    fabric.backward(loss)


# DeepSpeed --------------------------------------------------------------------------------


def _deepspeed(call: Callable[[Any], Any]) -> Meeting:
    def meeting() -> Iterator[None]:
        import deepspeed

        deepspeed.init_distributed("gloo", auto_mpi_discovery=False)
        yield
        call(deepspeed.comm)

    return meeting


_DEEPSPEED: dict[str, Callable[[Any], Any]] = {
    "barrier": lambda comm: comm.barrier(),
    "monitored_barrier": lambda comm: comm.monitored_barrier(timeout=LIMIT),
    "all_reduce": lambda comm: comm.all_reduce(_ones()),
    "broadcast": lambda comm: comm.broadcast(_ones(), 1),
    "all_gather": lambda comm: comm.all_gather(_two(), _ones()),
}
for _operation, _run in _DEEPSPEED.items():
    MEETINGS[f"deepspeed.comm.{_operation}"] = _deepspeed(_run)


# What one rank waits for by itself: the other one is in a barrier, for it -------------------


def _alone(call: Callable[[], Any]) -> Meeting:
    def meeting() -> Iterator[None]:
        yield
        try:
            if RANK == 0:
                call()
        finally:
            dist.barrier()

    return meeting


def _wandb_init() -> None:
    import wandb

    wandb.init(project="canary", settings=wandb.Settings(init_timeout=600))


def _from_pretrained() -> None:
    from transformers import AutoConfig

    AutoConfig.from_pretrained("canary/none")


def _hf_hub_download() -> None:
    from huggingface_hub import hf_hub_download

    hf_hub_download("canary/none", "config.json")


def _baton() -> None:
    from torch.utils.file_baton import FileBaton

    FileBaton(str(FOLDER / "baton")).wait()


def _workers() -> None:
    from torch.utils.data import DataLoader

    next(iter(DataLoader(_Asleep(), num_workers=1)))


class _Asleep(torch.utils.data.Dataset[int]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        with open(FOLDER / "fifo"):  # a FIFO: until somebody opens it to write
            return index


@_named("wandb.finish")
def _wandb_finish() -> Iterator[None]:
    import wandb

    run = None
    if RANK == 0:
        run = wandb.init(project="canary", mode="offline", dir=str(FOLDER))
        run.log({"loss": 1.0})
    dist.barrier()
    yield  # its helper process is stopped now
    if run is not None:
        run.finish()
    dist.barrier()


MEETINGS["wandb.init"] = _alone(_wandb_init)
MEETINGS["transformers.from_pretrained"] = _alone(_from_pretrained)
MEETINGS["huggingface_hub.hf_hub_download"] = _alone(_hf_hub_download)
MEETINGS["torch.FileBaton.wait"] = _alone(_baton)
MEETINGS["torch.DataLoader worker"] = _alone(_workers)


# The lock on a file: rank 1 has it, rank 0 waits for it -------------------------------------


@_named("filelock.FileLock.acquire")
def _file_lock() -> Iterator[None]:
    from filelock import FileLock

    lock = FileLock(str(FOLDER / "held.lock"))
    if RANK == 1:
        lock.acquire()
    dist.barrier()
    yield
    if RANK == 1:
        lock.release()
    else:
        lock.acquire()


@_named("huggingface_hub.WeakFileLock")
def _weak_file_lock() -> Iterator[None]:
    from huggingface_hub.utils import WeakFileLock

    lock = WeakFileLock(FOLDER / "weak.lock")
    if RANK == 1:
        lock.__enter__()
    dist.barrier()
    yield
    if RANK == 1:
        lock.__exit__(None, None, None)
    else:
        with lock:
            pass


# The protocol -----------------------------------------------------------------------------


def _answer(text: str) -> None:
    os.write(_OUT, f"{text}\n".encode())


_OUT = os.dup(1)  # what libraries print is not mixed with answers


def main() -> int:
    """Do as the lines on stdin say, until they end."""
    os.dup2(2, 1)
    entered: Iterator[None] = iter(())
    for line in sys.stdin:
        word, _, name = line.strip().partition(" ")
        try:
            if word == "ready":
                entered = MEETINGS[name]()
                next(entered)
                _answer("ready")
            else:
                next(entered, None)
                _answer("done")
        except BaseException as error:
            traceback.print_exc()
            _answer(f"failed {type(error).__name__}: {error}".replace("\n", " "))
    return 0


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)
