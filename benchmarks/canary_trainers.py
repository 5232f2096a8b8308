"""Meetings of accelerate, transformers and DeepSpeed, for canary_rank.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from canary_meetings import (
    FOLDER,
    KEPT,
    LIMIT,
    MEETINGS,
    RANK,
    Meeting,
    make_model,
    make_ones,
    make_two,
    named,
)

# accelerate -------------------------------------------------------------------------------


def _accelerator() -> Any:
    from accelerate import Accelerator

    if "accelerator" not in KEPT:
        KEPT["accelerator"] = Accelerator(cpu=True)
    return KEPT["accelerator"]


_ACCELERATOR: dict[str, Callable[[Any], Any]] = {
    "wait_for_everyone": lambda one: one.wait_for_everyone(),
    "gather": lambda one: one.gather(make_ones()),
    "gather_for_metrics": lambda one: one.gather_for_metrics(make_ones()),
    "reduce": lambda one: one.reduce(make_ones()),
    "pad_across_processes": lambda one: one.pad_across_processes(torch.ones(3 + RANK)),
    "prepare": lambda one: one.prepare(make_model()),
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
MEETINGS["accelerate.broadcast"] = _utility("broadcast", make_ones(), 1)
MEETINGS["accelerate.broadcast_object_list"] = _utility("broadcast_object_list", ["x"], 1)


@named("accelerate.main_process_first")
def _accelerate_main_first() -> Iterator[None]:
    one = _accelerator()
    yield
    with one.main_process_first():
        pass


@named("accelerate.backward")
def _accelerate_backward() -> Iterator[None]:
    one = _accelerator()
    model = one.prepare(torch.nn.Linear(4, 4))
    loss = model(make_ones()).sum()
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


@named("transformers.main_process_first")
def _main_first() -> Iterator[None]:
    arguments = _arguments()
    assert arguments.world_size == 2
    yield
    with arguments.main_process_first():
        pass


@named("transformers.Trainer.train")
def _train() -> Iterator[None]:
    trainer = _trainer()
    yield
    trainer.train()


@named("transformers.Trainer.evaluate")
def _evaluate() -> Iterator[None]:
    trainer = _trainer()
    yield
    trainer.evaluate()


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
    "all_reduce": lambda comm: comm.all_reduce(make_ones()),
    "broadcast": lambda comm: comm.broadcast(make_ones(), 1),
    "all_gather": lambda comm: comm.all_gather(make_two(), make_ones()),
    "reduce": lambda comm: comm.reduce(make_ones(), 0),
    "all_gather_into_tensor": lambda comm: comm.all_gather_into_tensor(torch.zeros(8), make_ones()),
    "reduce_scatter_tensor": lambda comm: comm.reduce_scatter_tensor(torch.zeros(2), make_ones()),
    "all_to_all_single": lambda comm: comm.all_to_all_single(torch.zeros(4), make_ones()),
    "recv": lambda comm: comm.recv(make_ones(), 1) if RANK == 0 else comm.send(make_ones(), 0),
    "new_group": lambda comm: comm.new_group([0, 1]),
}
for _operation, _run in _DEEPSPEED.items():
    MEETINGS[f"deepspeed.comm.{_operation}"] = _deepspeed(_run)


@named("deepspeed.init_distributed")
def _init_distributed() -> Iterator[None]:
    import deepspeed

    yield  # no process group is there
    deepspeed.init_distributed("gloo", auto_mpi_discovery=False)


def _initialize(stage: int) -> Any:
    import deepspeed

    model = torch.nn.Linear(4, 4)
    engine, *_ = deepspeed.initialize(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        config={
            "train_micro_batch_size_per_gpu": 2,
            "zero_optimization": {"stage": stage},
            "zero_allow_untested_optimizer": True,
        },
        dist_init_required=False,
    )
    return engine


def _train_step(engine: Any) -> None:
    engine.backward(engine(torch.ones(2, 4)).sum())
    engine.step()


_ENGINE: dict[str, Callable[[Any], Any]] = {
    "engine.train_step": _train_step,
    "engine.save_checkpoint": lambda engine: engine.save_checkpoint(str(FOLDER), tag="canary"),
}


def _enter_engine(call: Callable[[Any], Any], stage: int) -> Meeting:
    def meeting() -> Iterator[None]:
        import deepspeed

        deepspeed.init_distributed("gloo", auto_mpi_discovery=False)
        key = f"engine {stage}"
        if key not in KEPT:
            KEPT[key] = _initialize(stage)
            _train_step(KEPT[key])  # the first time, it imports
        yield
        call(KEPT[key])

    return meeting


for _part, _used in _ENGINE.items():
    MEETINGS[f"deepspeed.{_part}"] = _enter_engine(_used, 0)
    for _stage in (1, 2, 3):
        MEETINGS[f"deepspeed.stage {_stage} {_part}"] = _enter_engine(_used, _stage)


@named("deepspeed.initialize")
def _initialize_engine() -> Iterator[None]:
    import deepspeed

    deepspeed.init_distributed("gloo", auto_mpi_discovery=False)
    _initialize(0)  # the first time, it imports
    yield
    _initialize(0)
