"""A script that makes every call of the table of known calls that a machine without a GPU can make.

Started by known_calls.py. A part whose library is not installed, or that fails, says so and is
over: what counts is that the call was reached.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import sys
import tempfile
from collections.abc import Callable
from typing import Any

PARTS: list[Callable[[], None]] = []
NO_HUB = {"HF_HUB_OFFLINE": "1", "WANDB_MODE": "offline", "MLFLOW_ALLOW_FILE_STORE": "true"}
QUIET = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}


def part(function: Callable[[], None]) -> Callable[[], None]:
    """Note a part of the walk."""
    PARTS.append(function)
    return function


def tried(*calls: Callable[[], Any]) -> None:
    """Make each call; whatever it raises."""
    for call in calls:
        with contextlib.suppress(Exception):
            call()


@part
def hub() -> None:
    import huggingface_hub as h

    tried(lambda: h.hf_hub_download("a/b", "c"), lambda: h.snapshot_download("a/b"))
    tried(lambda: h.login("hf_" + "x" * 34))


@part
def models() -> None:
    import safetensors.torch
    import torch
    import transformers as t
    from tokenizers import Tokenizer
    from tokenizers import models as kinds

    words = Tokenizer(kinds.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))
    t.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]").save_pretrained("m")
    config = t.GPT2Config(n_layer=1, n_head=1, n_embd=8, vocab_size=8, n_positions=16)
    t.AutoModelForCausalLM.from_config(config).save_pretrained("m")
    tokenizer = t.AutoTokenizer.from_pretrained("m")
    t.PreTrainedTokenizerFast.from_pretrained("m")
    t.AutoConfig.from_pretrained("m")
    tried(lambda: t.AutoProcessor.from_pretrained("m"))
    model = t.AutoModelForCausalLM.from_pretrained("m")
    t.GPT2LMHeadModel.from_pretrained("m")
    t.GenerationConfig.from_pretrained("m")
    model.generate(torch.ones(1, 2, dtype=torch.long), max_new_tokens=1)
    t.pipeline("text-generation", model=model, tokenizer=tokenizer)
    safetensors.torch.load_file("m/model.safetensors")
    rows = [
        {"input_ids": torch.ones(4, dtype=torch.long), "labels": torch.ones(4, dtype=torch.long)}
    ] * 4
    arguments = t.TrainingArguments(
        "out", max_steps=1, report_to=[], use_cpu=True, disable_tqdm=True, save_strategy="no"
    )
    t.Trainer(model=model, args=arguments, train_dataset=rows).train()


@part
def adapters() -> None:
    import peft
    import transformers as t

    config = t.GPT2Config(n_layer=1, n_head=1, n_embd=8, vocab_size=8, n_positions=16)
    peft.get_peft_model(t.GPT2LMHeadModel(config), peft.LoraConfig(target_modules=["c_attn"], r=2))


@part
def data() -> None:
    import datasets as d

    d.Dataset.from_dict({"a": [1, 2]}).map(lambda row: row).save_to_disk("rows")
    d.DatasetDict({"train": d.load_from_disk("rows")}).map(lambda row: row)
    tried(lambda: d.load_dataset("json", data_files="none.json"))


@part
def boards() -> None:
    from torch.utils.tensorboard import SummaryWriter

    SummaryWriter("board").close()


@part
def boards_of_another() -> None:
    import tensorboardX

    tensorboardX.SummaryWriter("boardx").close()


@part
def mlflow() -> None:
    import mlflow

    mlflow.set_tracking_uri("file:" + os.path.abspath("mlruns"))
    mlflow.set_experiment("e")
    mlflow.start_run()
    mlflow.end_run()


@part
def wandb() -> None:
    import wandb

    tried(lambda: wandb.login(key="0" * 40))
    wandb.init(mode="offline", project="p").finish()


@part
def mpi() -> None:
    importlib.import_module("mpi4py.MPI")


@part
def machine() -> None:
    import torch
    from torch.utils import cpp_extension

    tried(torch.cuda.init)
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
    torch.save(torch.ones(1), "c.pt")
    torch.load("c.pt")
    with open("wrong.cpp", "w") as file:
        file.write("#error")
    tried(lambda: cpp_extension.load("wrong_file", ["wrong.cpp"]))
    tried(lambda: cpp_extension.load_inline("wrong", ["#error"], no_implicit_headers=True))


def lightning(top: str) -> None:
    """Train, validate and set up by one of the packages that Lightning goes by."""
    import torch

    L = importlib.import_module(top)
    loggers = importlib.import_module(f"{top}.loggers")

    class Model(L.LightningModule):  # type: ignore[misc, name-defined]  # of either package
        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Linear(2, 1)

        def training_step(self, batch: Any, index: int) -> Any:
            return self.net(batch).sum()

        validation_step = test_step = training_step

        def predict_step(self, batch: Any, index: int) -> Any:
            return self.net(batch)

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.1)

    L.LightningDataModule()
    tried(lambda: loggers.WandbLogger(offline=True))
    tried(lambda: loggers.MLFlowLogger(tracking_uri="file:" + os.path.abspath("ml")))
    rows = torch.utils.data.DataLoader(torch.ones(8, 2), num_workers=1)
    world = int(os.environ.get("WORLD_SIZE", "1"))
    trainer = L.Trainer(
        accelerator="cpu",
        devices=world,
        max_steps=1,
        enable_model_summary=False,
        strategy="ddp" if world > 1 else "auto",
        **QUIET,
    )
    trainer.fit(Model(), rows)
    trainer.validate(Model(), rows, verbose=False)
    trainer.test(Model(), rows, verbose=False)
    trainer.predict(Model(), rows)


def fabric(top: str) -> None:
    """Set a model up by one of the packages that Fabric goes by."""
    import torch

    world = int(os.environ.get("WORLD_SIZE", "1"))
    made = importlib.import_module(top).Fabric(
        accelerator="cpu", devices=world, strategy="ddp" if world > 1 else "auto"
    )
    made.launch()
    model = torch.nn.Linear(2, 1)
    made.setup(model, torch.optim.SGD(model.parameters(), 0.1))


for name in ("lightning.pytorch", "pytorch_lightning"):
    PARTS.append(lambda top=name: lightning(top))
for name in ("lightning.fabric", "lightning_fabric"):
    PARTS.append(lambda top=name: fabric(top))


@part
def groups() -> None:
    import torch
    import torch.distributed as dist
    from torch.distributed import checkpoint, fsdp

    if not dist.is_initialized():
        tried(lambda: dist.init_process_group("gloo"))
    if not dist.is_initialized():
        return
    world, rank = dist.get_world_size(), dist.get_rank()

    def one() -> Any:
        return torch.ones(2)

    def each() -> list[Any]:
        return [one() for _ in range(world)]

    at_first = each() if rank == 0 else None
    dist.new_group([0])
    dist.barrier()
    dist.monitored_barrier()
    dist.all_reduce(one())
    dist.broadcast(one(), 0)
    dist.reduce(one(), 0)
    dist.all_gather(each(), one())
    dist.all_gather_object([None] * world, 1)
    dist.broadcast_object_list([1], 0)
    dist.gather(one(), at_first, 0)
    dist.gather_object(1, [None] * world if rank == 0 else None, 0)
    dist.scatter(one(), at_first, 0)
    dist.scatter_object_list([None], [1] * world, 0)
    tried(lambda: dist.all_gather_into_tensor(torch.ones(2 * world), one()))
    tried(lambda: dist.reduce_scatter_tensor(one(), torch.ones(2 * world)))
    tried(lambda: dist.reduce_scatter(one(), each()))
    tried(lambda: dist.all_to_all_single(torch.ones(world), torch.ones(world)))
    tried(lambda: dist.all_to_all(each(), each()), lambda: dist.all_reduce_coalesced([one()]))
    if rank == 0:
        dist.send(one(), 1)
        dist.send_object_list([1], 1)
    else:
        dist.recv(one(), 0)
        dist.recv_object_list([None], 0)
    torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
    tried(lambda: fsdp.fully_shard(torch.nn.Linear(2, 1)))
    tried(lambda: fsdp.FullyShardedDataParallel(torch.nn.Linear(2, 1)))
    tried(lambda: checkpoint.load({"a": one()}, checkpoint_id="none"))


@part
def accelerate() -> None:
    import accelerate
    import torch

    accelerate.Accelerator(cpu=True).prepare(torch.nn.Linear(2, 1))


@part
def deepspeed() -> None:
    import deepspeed
    import torch

    world = int(os.environ.get("WORLD_SIZE", "1"))
    config = {"train_batch_size": world, "optimizer": {"type": "SGD", "params": {"lr": 0.1}}}
    tried(lambda: deepspeed.init_distributed("gloo"))
    deepspeed.initialize(model=torch.nn.Linear(2, 1), config=config)


def main() -> None:
    """Walk through all parts."""
    argparse.ArgumentParser().parse_args([])
    os.environ.update(NO_HUB, DS_ACCELERATOR="cpu", CUDA_VISIBLE_DEVICES="")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for one in PARTS:
            try:
                one()
            except Exception as error:
                said = str(error).strip().splitlines()[:1]
                print(f"{one.__name__}: {type(error).__name__}: {said}", file=sys.stderr)
        os.chdir("/")


if __name__ == "__main__":
    main()
