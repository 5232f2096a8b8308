"""A callback calls a barrier on the first process alone, after the first step."""

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


def small() -> GPT2LMHeadModel:
    shape = GPT2Config(vocab_size=128, n_positions=16, n_embd=16, n_layer=1, n_head=1)
    return GPT2LMHeadModel(shape)


class Report(TrainerCallback):
    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **rest: object,
    ) -> None:
        if state.is_world_process_zero and state.global_step == 1:
            print("the first step is done")
            dist.barrier()


def main() -> None:
    arguments = TrainingArguments("out", max_steps=5, report_to="none", use_cpu=True)
    Trainer(small(), arguments, train_dataset=Numbers(), callbacks=[Report()]).train()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=2 train.py"
# culprits = [[0]]
# culprits_by_stacks = [[0, 1]]
# steps = [
#   "training", "first_batch", "first_backward", "first_step", "steady", "teardown", "barrier",
#   "all_reduce", "train", "first_barrier", "first_all_reduce",
# ]
# calls = ['distributed\.\w+', "backward"]
# ///
