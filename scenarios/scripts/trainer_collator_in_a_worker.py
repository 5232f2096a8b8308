"""The collator of rank 1's DataLoader worker opens a named pipe that nobody writes to."""

import argparse
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainingArguments,
    default_data_collator,
)


class Numbers(Dataset[dict[str, torch.Tensor]]):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = torch.arange(index, index + 8)
        return {"input_ids": tokens, "labels": tokens}


def small() -> GPT2LMHeadModel:
    shape = GPT2Config(vocab_size=128, n_positions=16, n_embd=16, n_layer=1, n_head=1)
    return GPT2LMHeadModel(shape)


class Collate:
    def __init__(self, noise: Path | None) -> None:
        self.noise = noise

    def __call__(self, rows: list[Any]) -> Any:
        if self.noise:
            self.noise.read_text()
        return default_data_collator(rows)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--noise", type=Path)
    args = parser.parse_args()
    arguments = TrainingArguments(
        "out", max_steps=5, report_to="none", use_cpu=True, dataloader_num_workers=1
    )
    collate = Collate(args.noise if arguments.process_index == 1 else None)
    Trainer(small(), arguments, train_dataset=Numbers(), data_collator=collate).train()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=2 train.py --noise $FIFO"
# world = "unopened_fifo"
# culprits = [[1]]
# waiting = [0]
# steps = ["first_batch", "training", "data_module", "data_workers", "train"]
# calls = ["DataLoader", "__call__", "read_text", "open"]
# ///
