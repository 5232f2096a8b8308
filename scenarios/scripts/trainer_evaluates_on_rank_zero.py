"""The first process alone evaluates after training: evaluate gathers from all, and they have
gone on to a barrier.
"""

import torch
import torch.distributed as dist
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Numbers(Dataset[dict[str, torch.Tensor]]):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = torch.arange(index, index + 8)
        return {"input_ids": tokens, "labels": tokens}


def small() -> GPT2LMHeadModel:
    shape = GPT2Config(vocab_size=128, n_positions=16, n_embd=16, n_layer=1, n_head=1)
    return GPT2LMHeadModel(shape)


def main() -> None:
    arguments = TrainingArguments("out", max_steps=2, report_to="none", use_cpu=True)
    trainer = Trainer(small(), arguments, train_dataset=Numbers(), eval_dataset=Numbers())
    if trainer.is_world_process_zero():
        print(trainer.evaluate())
    dist.barrier()
    trainer.train()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=2 train.py"
# culprits = [[0]]
# culprits_by_stacks = [[0, 1]]
# steps = [
#   "training", "first_batch", "barrier", "all_gather", "process_group", "steady", "trainer",
#   "train", "first_barrier", "first_all_gather",
# ]
# own_code = true
# calls = ['distributed\.\w+']
# ///
