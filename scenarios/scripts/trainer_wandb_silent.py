"""report_to="wandb", and W&B's server never answers: rank 0 sits in wandb.init."""

import torch
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
    arguments = TrainingArguments("out", max_steps=5, report_to="wandb", use_cpu=True)
    Trainer(small(), arguments, train_dataset=Numbers()).train()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=2 train.py"
# world = "silent_wandb"
# culprits = [[0]]
# waiting = [1]
# steps = ["wandb_logger", "training", "setup", "wandb_init", "train"]
# calls = ['wandb\.init']
# ///
