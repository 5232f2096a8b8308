"""Rank 2 cannot parse a metric, and gathers everybody's error in its except handler.

Nobody else had an error: rank 2 is in `all_gather_object`, the others train on.
"""

import json

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
        return 128

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = torch.arange(index % 64, index % 64 + 8)
        return {"input_ids": tokens, "labels": tokens}


class SystemMetrics(TrainerCallback):
    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **rest: object,
    ) -> None:
        line = '{"watts": 210' if args.process_index == 2 and state.global_step == 3 else "{}"
        try:
            json.loads(line)
        except json.JSONDecodeError as error:
            errors: list[str | None] = [None] * args.world_size
            dist.all_gather_object(errors, f"rank {args.process_index}: {error}")
            print("metrics failed", errors)


def main() -> None:
    arguments = TrainingArguments(
        "out",
        max_steps=8,
        per_device_train_batch_size=2,
        report_to="none",
        use_cpu=True,
        save_strategy="no",
    )
    shape = GPT2Config(vocab_size=128, n_positions=16, n_embd=16, n_layer=1, n_head=1)
    Trainer(
        GPT2LMHeadModel(shape),
        arguments,
        train_dataset=Numbers(),
        callbacks=[SystemMetrics()],
    ).train()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py"
# culprits = [[2]]
# culprits_by_stacks = [[0, 1, 2, 3]]
# waiting = [0, 1, 3]
# steps = [
#   "training", "first_batch", "first_backward", "first_step", "steady", "train",
#   "all_gather", "all_gather_object", "all_reduce", "first_all_gather",
#   "first_all_gather_object", "first_all_reduce",
# ]
# calls = ['distributed\.\w+', "backward"]
# causes = [
#   "rank-conditional-collective", "collective-mismatch", "gloo-mismatch", "swallowed-exception",
# ]
# ///
