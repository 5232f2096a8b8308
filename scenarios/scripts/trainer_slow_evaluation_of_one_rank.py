"""Healthy: after the first steps rank 1 scores generated texts in pure Python; others wait.

An edit distance of long texts, no library around it, no line for most of a minute.
"""

import argparse
import random
import time

import torch
import torch.distributed as dist
from torch.utils.data import Dataset
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)


class Numbers(Dataset[dict[str, torch.Tensor]]):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = torch.arange(index, index + 8)
        return {"input_ids": tokens, "labels": tokens}


def distance(left: list[int], right: list[int]) -> int:
    row = [*range(len(right) + 1)]
    for number, one in enumerate(left, 1):
        before, row = row, [number]
        for place, other in enumerate(right, 1):
            row.append(min(before[place] + 1, row[-1] + 1, before[place - 1] + (one != other)))
    return row[-1]


class Scores(TrainerCallback):
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **rest: object,
    ) -> None:
        if state.global_step != 2:
            return
        if args.process_index == 1:
            chosen, end, worst = random.Random(3), time.monotonic() + self.seconds, 0
            while time.monotonic() < end:
                texts = [[chosen.randrange(50) for _ in range(3000)] for _ in range(2)]
                worst = max(worst, distance(*texts))
            print(f"worst {worst}", flush=True)
        dist.barrier()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=45.0)
    args = parser.parse_args()
    arguments = TrainingArguments(
        "out", max_steps=5, report_to="none", use_cpu=True, save_strategy="no"
    )
    shape = GPT2Config(vocab_size=128, n_positions=16, n_embd=16, n_layer=1, n_head=1)
    Trainer(
        GPT2LMHeadModel(shape),
        arguments,
        train_dataset=Numbers(),
        callbacks=[Scores(args.seconds)],
    ).train()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py --seconds $AMOUNT"
# outcome = "ok"
# amount = 45.0
# limit = 240.0
# ///
