"""Scripts in the shape of the quick starts that people begin with, and how each is started.

Small enough to end within seconds on a CPU; what they print is the same at each start.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

PYTHON = sys.executable
BIN = Path(sys.executable).parent


@dataclass(frozen=True)
class QuickStart:
    """A script and the words that start it: "train.py" is the script."""

    name: str
    command: tuple[str, ...]
    source: str
    needs: tuple[str, ...] = ()  # modules
    status: int = 0


def _torchrun(*words: str) -> tuple[str, ...]:
    return (str(BIN / "torchrun"), "--standalone", "--nproc_per_node=2", *words)


DDP = """
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(torch.nn.Linear(4, 1))
    data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
    sampler = DistributedSampler(data, shuffle=False)
    loader = DataLoader(data, batch_size=4, sampler=sampler, num_workers=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for n, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        dist.all_reduce(loss)
        if dist.get_rank() == 0:
            print(n, f"{loss.item():.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()

if __name__ == "__main__":
    main()
"""

SPAWN = """
import os, torch, torch.distributed as dist, torch.multiprocessing as mp

def run(rank, world, port):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    value = torch.tensor([float(rank + 1)])
    dist.all_reduce(value)
    if rank == 0:
        print("sum", value.item(), flush=True)
    dist.barrier()
    dist.destroy_process_group()

if __name__ == "__main__":
    import socket
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(run, args=(2, port), nprocs=2)
    print("done")
"""

LIGHTNING = """
import logging, warnings
logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
warnings.simplefilter("ignore")
import torch
import pytorch_lightning as pl
from torch.utils.data import DataLoader, TensorDataset

class Base(pl.LightningModule):
    def __init__(self, width=3):
        super().__init__()
        self.save_hyperparameters()

class Model(Base):
    def __init__(self, rate=0.1, width=4):
        super().__init__(width)
        self.net = torch.nn.Linear(width, 1)

    def training_step(self, batch, index):
        x, y = batch
        return ((self.net(x) - y) ** 2).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.hparams.rate)

class Data(pl.LightningDataModule):
    def setup(self, stage):
        torch.manual_seed(0)
        self.data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))

    def train_dataloader(self):
        return DataLoader(self.data, batch_size=4)

if __name__ == "__main__":
    pl.seed_everything(1, verbose=False)
    model, data = Model(), Data()
    trainer = pl.Trainer(
        accelerator="cpu", devices=DEVICES, strategy=STRATEGY, max_steps=7, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )
    trainer.fit(model, data)
    if trainer.is_global_zero:
        print(sorted(model.hparams.items()), trainer.global_step)
        print(f"{sum(p.sum().item() for p in model.parameters()):.4f}")
"""

TRAINER = """
import os
os.environ["DS_ACCELERATOR"] = "cpu"
import tempfile, torch
from transformers import PrinterCallback
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

if __name__ == "__main__":
    set_seed(0)
    config = GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=32, n_positions=16)
    rows = [{"input_ids": torch.arange(8) % 32, "labels": torch.arange(8) % 32} for _ in range(32)]
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(
            output_dir=folder, max_steps=6, per_device_train_batch_size=2, report_to=[],
            logging_steps=100, save_strategy="no", use_cpu=True, disable_tqdm=True,
        )
        trainer = Trainer(model=GPT2LMHeadModel(config), args=args, train_dataset=rows)
        trainer.remove_callback(PrinterCallback)
        out = trainer.train()
        if trainer.is_world_process_zero(): print(out.global_step, f"{out.training_loss:.3f}")
"""

ACCELERATE = """
import os
os.environ["DS_ACCELERATOR"] = "cpu"
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

def main():
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True)
    data = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=4)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, data = accelerator.prepare(model, optimizer, data)
    for n, (x, y) in enumerate(data):
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        accelerator.backward(loss)
        optimizer.step()
        total = accelerator.gather(loss.reshape(1)).mean().item()
        accelerator.print(n, f"{total:.4f}", flush=True)
    accelerator.end_training()

if __name__ == "__main__":
    main()
"""

SHOWS = """
import os, sys
words = [sys.argv, sys.path, __file__, __name__, __spec__ and __spec__.name, sys.flags]
words += [sys.orig_argv, "sitecustomize" in sys.modules, sorted(globals())]
os.write(1, f"{words}\\n".encode())
"""

ARGUMENTS = """
import argparse, torch
parser = argparse.ArgumentParser(prog="train", description="Trains.")
parser.add_argument("--rate", type=float, default=0.1)
parser.add_argument("words", nargs="*")
args = parser.parse_args()
print(args, torch.ones(2).sum().item())
"""

PROCESSES = """
import multiprocessing, sys, torch
from concurrent.futures import ProcessPoolExecutor

def square(n):
    return n * n, __name__, sys.argv[1:]

if __name__ == "__main__":
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        print(sorted(pool.map(square, range(4))))
    with multiprocessing.get_context("fork").Pool(2) as pool:
        print(sorted(pool.map(square, range(4))))
"""

RAISES = """
import torch, warnings
class Broken(Exception): pass
def load(path):
    warnings.warn("odd", stacklevel=2)
    try:
        torch.load(path)
    except FileNotFoundError as error:
        raise Broken("no file") from error
load("/no/such/file")
"""

EXITS = """
import sys, torch
sys.exit(3)
"""

GROUP_RAISES = """
import torch.distributed as dist
dist.init_process_group("no-such-backend")
"""

_ACCELERATE = (str(BIN / "accelerate"), "launch", "--num_processes=2", "--multi_gpu")

QUICK_STARTS = (
    QuickStart("torch DDP", _torchrun("train.py"), DDP),
    QuickStart("torch spawn", (PYTHON, "train.py"), SPAWN),
    QuickStart(
        "Lightning, its own launch",
        (PYTHON, "train.py"),
        LIGHTNING.replace("DEVICES", "2").replace("STRATEGY", '"ddp"'),
        ("pytorch_lightning",),
    ),
    QuickStart(
        "Lightning as a module",
        (PYTHON, "-m", "train"),
        LIGHTNING.replace("DEVICES", "2").replace("STRATEGY", '"ddp"'),
        ("pytorch_lightning",),
    ),
    QuickStart(
        "Lightning, forked",
        (PYTHON, "train.py"),
        LIGHTNING.replace("DEVICES", "2").replace("STRATEGY", '"ddp_fork"'),
        ("pytorch_lightning",),
    ),
    QuickStart(
        "Lightning under torchrun",
        _torchrun("train.py"),
        LIGHTNING.replace("DEVICES", "2").replace("STRATEGY", '"ddp"'),
        ("pytorch_lightning",),
    ),
    QuickStart("transformers Trainer", (PYTHON, "train.py"), TRAINER, ("transformers",)),
    QuickStart("transformers Trainer, 2", _torchrun("train.py"), TRAINER, ("transformers",)),
    QuickStart(
        "accelerate", (*_ACCELERATE, "--multi_gpu", "train.py"), ACCELERATE, ("accelerate",)
    ),
    QuickStart("shows", (PYTHON, "train.py", "a b", "--c"), SHOWS),
    QuickStart("shows as a module", (PYTHON, "-u", "-m", "train", "a b"), SHOWS),
    QuickStart("shows under torchrun", _torchrun("train.py", "x"), SHOWS),
    QuickStart("argparse", (PYTHON, "train.py", "--rate", "2", "w"), ARGUMENTS),
    QuickStart("argparse, wrong", (PYTHON, "train.py", "--rte"), ARGUMENTS, status=2),
    QuickStart("processes", (PYTHON, "train.py", "z"), PROCESSES),
    QuickStart("raises", (PYTHON, "train.py"), RAISES, status=1),
    QuickStart("a group raises", _torchrun("train.py"), GROUP_RAISES, status=1),
    QuickStart("exits with 3", (PYTHON, "train.py"), EXITS, status=3),
)
