"""The hub's cache is locked by a stranger: from_pretrained waits for a lock without saying so
(huggingface/huggingface_hub#2543).
"""

import torch
from torch.utils.data import Dataset
from transformers import (
    AutoTokenizer,
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
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


def main() -> None:
    arguments = TrainingArguments("out", max_steps=5, report_to="none", use_cpu=True)
    tokenizer = AutoTokenizer.from_pretrained("people/small")
    print(len(tokenizer), "tokens")
    Trainer(small(), arguments, train_dataset=Numbers()).train()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=2 train.py"
# world = "held_hub_lock"
# culprits = [[0, 1]]
# steps = ["tokenizer"]
# calls = ['AutoTokenizer\.from_pretrained']
# ///
