"""Waits for servers, services, workers and the locks on files, for canary_rank.py."""

from __future__ import annotations

import os
from collections.abc import Iterator

import torch
import torch.distributed as dist
from canary_meetings import FOLDER, RANK, add_waits, named, stand_still

# What one rank waits for by itself: the other one is in a barrier, for it -------------------


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
        stand_still()
        return index


@named("wandb.finish")
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


@named("wandb.init offline")
def _init_offline() -> Iterator[None]:
    import wandb

    if RANK == 0:
        wandb.setup()
    dist.barrier()
    yield  # its helper process is stopped now
    if RANK == 0:
        own = wandb.Settings(init_timeout=600)
        wandb.init(project="canary", mode="offline", dir=str(FOLDER), settings=own).finish()
    dist.barrier()


@named("wandb.setup")
def _wandb_setup() -> Iterator[None]:
    import wandb

    dist.barrier()
    yield  # its helper process is stopped as soon as it is there
    if RANK == 0:
        wandb.setup()
    dist.barrier()


def _wandb_login() -> None:
    import wandb

    wandb.login(verify=True, host=os.environ["WANDB_BASE_URL"])


def _wandb_logger() -> None:
    import wandb
    from pytorch_lightning.loggers import WandbLogger

    settings = wandb.Settings(init_timeout=600)
    _ = WandbLogger(project="canary", save_dir=str(FOLDER), settings=settings).experiment


def _snapshot_download() -> None:
    from huggingface_hub import snapshot_download

    snapshot_download("canary/none")


def _model_info() -> None:
    from huggingface_hub import HfApi

    HfApi().model_info("canary/none", timeout=600)


def _download_half() -> None:
    from huggingface_hub import hf_hub_download

    hf_hub_download("canary/half", "config.json")


add_waits(
    {
        "wandb.init": _wandb_init,
        "wandb.login": _wandb_login,
        "wandb.WandbLogger": _wandb_logger,
        "transformers.from_pretrained": _from_pretrained,
        "huggingface_hub.hf_hub_download": _hf_hub_download,
        "huggingface_hub.hf_hub_download half": _download_half,
        "huggingface_hub.snapshot_download": _snapshot_download,
        "huggingface_hub.HfApi.model_info": _model_info,
        "torch.FileBaton.wait": _baton,
        "torch.DataLoader worker": _workers,
    }
)


@named("huggingface_hub.hf_hub_download shared")
def _download_shared() -> Iterator[None]:
    from huggingface_hub import hf_hub_download

    yield  # rank 1 enters first: it has the lock and hears nothing of the file
    hf_hub_download("canary/whole", "config.json")


@named("transformers.from_pretrained shared")
def _load_shared() -> Iterator[None]:
    from transformers import AutoConfig

    yield
    AutoConfig.from_pretrained("canary/config")


# The lock on a file: rank 1 has it, rank 0 waits for it -------------------------------------


@named("filelock.FileLock.acquire")
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


@named("huggingface_hub.WeakFileLock")
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
