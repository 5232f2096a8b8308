"""Trains a small language model, one step after another, as a script of one's own does it.

torchrun --nproc_per_node=2 train.py [--use STEP=MODULE:FUNCTION] [--until STEP]

A function of --use does one step in place of the one here. It gets what the steps before it made,
by name, with `args` and `context`.
"""

from __future__ import annotations

import argparse
import importlib
import os
from types import SimpleNamespace
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
END_OF_TEXT = "<|endoftext|>"
LENGTH = 64  # tokens of a text


def rank_number(given: Any) -> int:
    """Return which rank of the case this one plays: itself, unless the environment says more."""
    number: int = given.context.place.rank
    roles = os.environ.get("ZOO_ROLES")
    return int(roles.split(",")[number]) if roles else number


def run_usual_step(given: Any) -> Any:
    """Do the step that is under way as this script does it, and return its product."""
    return STEPS[given.context.step](given)


def logs_directory(given: Any) -> str:
    """Make the folder of the logs, on rank 0 alone if that is asked for."""
    path = given.args.logs_path or os.path.join(HERE, "logs")
    if given.args.make_logs_dir != "rank0" or given.context.place.rank == 0:
        os.makedirs(path, exist_ok=True)
    return path


def tokenizer(given: Any) -> Any:
    """Load the tokenizer, from the hub if it has a name."""
    import transformers

    if given.args.tokenizer:
        loaded = transformers.AutoTokenizer.from_pretrained(given.args.tokenizer)
    else:
        file = os.path.join(HERE, "tokenizer.json")
        loaded = transformers.PreTrainedTokenizerFast(tokenizer_file=file, eos_token=END_OF_TEXT)
    loaded.pad_token = loaded.pad_token or loaded.eos_token
    return loaded


def model(given: Any) -> Any:
    """Make a small GPT-2."""
    import transformers

    config = transformers.AutoConfig.from_pretrained(os.path.join(HERE, "model_config.json"))
    config.vocab_size = max(config.vocab_size, len(given.tokenizer or ()))
    return transformers.GPT2LMHeadModel(config)


def lightning_module(given: Any) -> Any:
    """Wrap the model for Lightning."""
    import pytorch_lightning as pl
    import torch

    class LanguageModel(pl.LightningModule):
        def __init__(self, model: Any) -> None:
            super().__init__()
            self.model = model

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            loss = self.model(**batch).loss
            self.log("train/loss", loss.detach())
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), lr=3e-4)

    return LanguageModel(given.model)


class Collate:
    """Turns texts into a batch of tokens; workers that are not forked get a copy of it."""

    def __init__(self, tokenizer: Any) -> None:
        """Tokenize with `tokenizer`."""
        self.tokenizer = tokenizer

    def __call__(self, texts: list[str]) -> Any:
        """Return input_ids, attention_mask and labels."""
        batch = self.tokenizer(
            texts, truncation=True, max_length=LENGTH, padding="max_length", return_tensors="pt"
        )
        return {
            "input_ids": batch["input_ids"],
            "attention_mask": batch["attention_mask"],
            "labels": batch["input_ids"].clone(),
        }


def data_module(given: Any) -> Any:
    """Make batches of the lines of a text."""
    import pytorch_lightning as pl
    from torch.utils.data import DataLoader

    class Lines(pl.LightningDataModule):
        def __init__(self, tokenizer: Any, batch_size: int, num_workers: int) -> None:
            super().__init__()
            self.tokenizer = tokenizer
            self.batch_size = batch_size
            self.num_workers = num_workers
            self.texts: Any = []
            self.path = os.path.join(HERE, "text.txt")

        def setup(self, stage: str) -> None:
            with open(self.path, encoding="utf-8") as file:
                self.texts = [line.strip() for line in file if line.strip()] * 40
            self.tokenizer(self.texts[:64])

        def train_dataloader(self) -> Any:
            return DataLoader(
                self.texts,
                batch_size=self.batch_size,
                shuffle=True,
                drop_last=True,
                collate_fn=Collate(self.tokenizer),
                num_workers=self.num_workers,
                multiprocessing_context="fork" if self.num_workers else None,
            )

    return Lines(given.tokenizer, given.args.batch_size, given.args.num_workers)


def wandb_logger(given: Any) -> Any:
    """Start W&B on rank 0, or as --wandb says; without an account offline."""
    how: Any = given.args.wandb
    if how == "off" or (how != "every-rank" and given.context.place.rank != 0):
        return False
    import wandb
    from pytorch_lightning.loggers import WandbLogger

    offline = how == "offline" or "WANDB_API_KEY" not in os.environ
    if how == "every-rank":
        how = "offline" if offline else "online"
        run = wandb.init(project="small", dir=given.logs_directory, mode=how)
        return WandbLogger(experiment=run)
    logger = WandbLogger(project="small", save_dir=given.logs_directory, offline=offline)
    _ = logger.experiment  # here the run begins
    return logger


def memory_callback(given: Any) -> Any:
    """Print the memory of this rank when training begins."""
    import psutil
    import pytorch_lightning as pl

    class Memory(pl.Callback):
        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            print(f"memory: {psutil.Process().memory_info().rss >> 20} MiB", flush=True)

    return Memory()


def trainer(given: Any) -> Any:
    """Make the Trainer."""
    import pytorch_lightning as pl

    callbacks = given.memory_callback
    return pl.Trainer(
        accelerator="cpu",
        devices=int(os.environ.get("LOCAL_WORLD_SIZE", 0)) or given.args.devices,
        logger=given.wandb_logger or False,
        callbacks=list(callbacks) if isinstance(callbacks, (list, tuple)) else [callbacks],
        default_root_dir=given.logs_directory,
        max_epochs=-1,
        max_steps=given.args.fast_dev_run,
        limit_train_batches=given.args.fast_dev_run,
        log_every_n_steps=1,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )


def training(given: Any) -> None:
    """Train, and end the run of W&B."""
    import sys

    given.trainer.fit(given.lightning_module, given.data_module)
    run = getattr(sys.modules.get("wandb"), "run", None)
    if run is not None:
        run.finish()


STEPS = {
    "script": lambda given: None,
    "arguments": lambda given: given.args,
    "logs_directory": logs_directory,
    "tokenizer": tokenizer,
    "model": model,
    "lightning_module": lightning_module,
    "data_module": data_module,
    "accelerator": lambda given: "cpu",
    "wandb_logger": wandb_logger,
    "memory_callback": memory_callback,
    "trainer": trainer,
    "training": training,
}


def read_arguments() -> argparse.Namespace:
    """Return the arguments of this script; others are for other launches, and are passed over."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for flag, default in (("--fast-dev-run", 1), ("--batch-size", 32), ("--num-workers", 0)):
        parser.add_argument(flag, type=int, default=default)
    for flag in ("--until", "--tokenizer", "--make-logs-dir", "--logs-path"):
        parser.add_argument(flag)
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--wandb", default="rank0")
    parser.add_argument("--tokenizers-parallelism")
    parser.add_argument("--use", action="append", default=[])
    parser.add_argument("--skip", action="append", default=[])
    return parser.parse_known_args()[0]


def main() -> None:
    """Do all steps, or those until --until."""
    args = read_arguments()
    if args.tokenizers_parallelism:
        os.environ["TOKENIZERS_PARALLELISM"] = str(args.tokenizers_parallelism == "on").lower()
    used = dict(word.split("=", 1) for word in args.use)
    place = SimpleNamespace(rank=int(os.environ.get("RANK", os.environ.get("LOCAL_RANK", 0))))
    context = SimpleNamespace(place=place, imports=importlib.import_module, step="")
    given = SimpleNamespace(args=args, context=context, **dict.fromkeys(STEPS))
    for name, step in STEPS.items():
        context.step = name
        if name in used:
            module, _, function = used[name].partition(":")
            step = getattr(importlib.import_module(module), function)
        if name not in args.skip:
            setattr(given, name, step(given))
        if name == args.until:
            meet()
            break


def meet() -> None:
    """Wait until all ranks are there."""
    if "RANK" in os.environ:
        import torch.distributed as dist

        dist.init_process_group("gloo")
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
