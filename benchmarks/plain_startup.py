"""The steps of the `startup` pipeline as a plain script: no lines, no watch, no barriers.

    torchrun --nproc_per_node=2 benchmarks/plain_startup.py --fast-dev-run 1 --logs-path DIR

It uses the same libraries, shapes and classes, so the difference to a walk is what the harness
costs.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any


def part(name: str) -> Any:
    """Return a module of the package: installed, or of this checkout."""
    if importlib.util.find_spec("hangbisect") is None:
        folder = Path(__file__).resolve().parents[1] / "bisect"
        spec = importlib.util.spec_from_file_location(
            "hangbisect", folder / "__init__.py", submodule_search_locations=[str(folder)]
        )
        assert spec is not None
        sys.modules["hangbisect"] = importlib.util.module_from_spec(spec)
    return importlib.import_module(f"hangbisect.pipelines.{name}")


def main() -> None:
    """Do what steps 3 to 12 do, in their order."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fast-dev-run", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--logs-path", default="logs")
    args = parser.parse_args()
    os.makedirs(args.logs_path, exist_ok=True)

    import torch  # noqa: F401  (the walk imports it first, too)
    import transformers

    steps = part("model_steps")
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=steps.TOKENIZER, eos_token=steps.END_OF_TEXT, pad_token=steps.END_OF_TEXT
    )
    config = transformers.AutoConfig.from_pretrained(steps.MODEL_CONFIG)
    model = transformers.GPT2LMHeadModel(config)

    import pytorch_lightning as pl

    module = part("lightning_modules").LLMModule(model)
    data = part("lightning_modules").TextData(steps.TEXT, tokenizer, args.batch_size, 0, "fork")
    logger = start_wandb(args.logs_path)
    memory = part("lightning_modules").MemoryLoggingCallback(lambda line: None)
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        logger=logger,
        callbacks=[memory],
        default_root_dir=args.logs_path,
        max_epochs=-1,
        max_steps=args.fast_dev_run,
        limit_train_batches=args.fast_dev_run,
        log_every_n_steps=1,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, data)
    import wandb

    if wandb.run is not None:
        wandb.run.finish()


def start_wandb(folder: str) -> Any:
    """Return a WandbLogger that was started as `--wandb logger` starts it."""
    import wandb
    from pytorch_lightning.loggers import WandbLogger

    offline = not part("startup").has_account(wandb)
    mode = {"mode": "offline"} if offline else {}
    logger = WandbLogger(project="hangbisect", save_dir=folder, offline=offline, **mode)
    _ = logger.experiment
    return logger


if __name__ == "__main__":
    main()
