"""Meetings of Lightning, for canary_rank.py."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from canary_meetings import (
    FOLDER,
    KEPT,
    MEETINGS,
    RANK,
    Meeting,
    make_model,
    make_ones,
    named,
    stand_still,
)

# Lightning --------------------------------------------------------------------------------


def _lightning(hook: str = "", stays: int = -1, **options: Any) -> tuple[Any, Any, Any]:
    """Return a trainer, its module and its data. `stays`: the rank whose `hook` stands still."""
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

    if hook:
        setattr(Module, hook, _make_hook(getattr(Module, hook), stays, hook in vars(Module)))
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_steps=2,
        logger=False,
        enable_checkpointing=options.pop("enable_checkpointing", False),
        enable_progress_bar=False,
        enable_model_summary=False,
        limit_val_batches=1,
        **options,
    )
    rows: Any = [make_ones() for _ in range(8)]
    return trainer, Module(), DataLoader(rows, batch_size=2)


def _make_hook(usual: Callable[..., Any], stays: int, is_own: bool) -> Callable[..., Any]:
    stands = iter([stays == RANK])  # the first time

    def hook(self: Any, *arguments: Any, **named_ones: Any) -> Any:
        if next(stands, False):
            stand_still()
        return usual(self, *arguments, **named_ones)

    # Lightning passes what the signature names, and calls no hook that wraps its own.
    return functools.wraps(usual)(hook) if is_own else hook


_TRAINER: dict[str, Callable[[Any, Any, Any], Any]] = {
    "Trainer.fit": lambda trainer, module, data: trainer.fit(module, data, data),
    "Trainer.validate": lambda trainer, module, data: trainer.validate(module, data, verbose=False),
    "Trainer.save_checkpoint": lambda trainer, module, data: trainer.save_checkpoint(
        FOLDER / "lightning.ckpt"
    ),
    "strategy.barrier": lambda trainer, module, data: trainer.strategy.barrier("canary"),
    "strategy.broadcast": lambda trainer, module, data: trainer.strategy.broadcast("x", src=1),
    "strategy.reduce": lambda trainer, module, data: trainer.strategy.reduce(make_ones()),
    "strategy.reduce_boolean_decision": lambda trainer, module, data: (
        trainer.strategy.reduce_boolean_decision(True)
    ),
    "strategy.all_gather": lambda trainer, module, data: trainer.strategy.all_gather(make_ones()),
}


def _enter_trainer(call: Callable[[Any, Any, Any], Any], fitted: bool) -> Meeting:
    def meeting() -> Iterator[None]:
        if fitted:
            if "lightning" not in KEPT:
                KEPT["lightning"] = _lightning()
                trainer, module, data = KEPT["lightning"]
                trainer.fit(module, data)
            yield
            call(*KEPT["lightning"])
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

    if "fabric" not in KEPT:
        KEPT["fabric"] = Fabric(accelerator="cpu", devices=2, strategy="ddp")
        KEPT["fabric"].launch()
    return KEPT["fabric"]


_FABRIC: dict[str, Callable[[Any], Any]] = {
    "barrier": lambda fabric: fabric.barrier(),
    "all_gather": lambda fabric: fabric.all_gather(make_ones()),
    "all_reduce": lambda fabric: fabric.all_reduce(make_ones()),
    "broadcast": lambda fabric: fabric.broadcast("x", src=1),
    "setup": lambda fabric: fabric.setup(make_model()),
    "save": lambda fabric: fabric.save(str(FOLDER / "fabric.ckpt"), {"weight": make_ones()}),
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


@named("lightning.Fabric.rank_zero_first")
def _rank_zero_first() -> Iterator[None]:
    fabric = _fabric()
    yield
    with fabric.rank_zero_first():
        pass


@named("lightning.Fabric.backward")
def _fabric_backward() -> Iterator[None]:
    fabric = _fabric()
    model = fabric.setup(torch.nn.Linear(4, 4))
    loss = model(make_ones()).sum()
    yield
    fabric.backward(loss)


@named("lightning.Fabric.launch")
def _fabric_launch() -> Iterator[None]:
    from lightning_fabric import Fabric

    fabric = Fabric(accelerator="cpu", devices=2, strategy="ddp")
    yield  # no process group is there
    fabric.launch()


@named("lightning.Fabric.rank_zero_first block")
def _rank_zero_first_block() -> Iterator[None]:
    fabric = _fabric()
    yield
    with fabric.rank_zero_first():
        if RANK == 0:
            stand_still()


# What code of the job's own Trainer.fit calls, and the rank that stands still in it: the other one
# is in the meeting that follows.
_HOOKS = {
    "prepare_data": 0,
    "setup": 1,
    "configure_optimizers": 1,
    "on_fit_start": 1,
    "training_step": 1,
    "on_save_checkpoint": 0,
}


def _enter_hook(hook: str, stays: int) -> Meeting:
    def meeting() -> Iterator[None]:
        saves: dict[str, Any] = {}
        if hook == "on_save_checkpoint":
            saves = {"enable_checkpointing": True, "default_root_dir": str(FOLDER)}
        trainer, module, data = _lightning(hook, stays, **saves)
        yield
        trainer.fit(module, data, data)

    return meeting


for _hook, _stays in _HOOKS.items():
    MEETINGS[f"lightning.fit {_hook}"] = _enter_hook(_hook, _stays)


@named("lightning.first fit")
def _first_fit() -> Iterator[None]:
    trainer, module, data = _lightning()
    yield  # no process group is there
    trainer.fit(module, data, data)
