"""The hub accepts and never answers: every rank sits in from_pretrained of the model."""

import torch
from torch.utils.data import Dataset
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments


class Numbers(Dataset[dict[str, torch.Tensor]]):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = torch.arange(index, index + 8)
        return {"input_ids": tokens, "labels": tokens}


def main() -> None:
    arguments = TrainingArguments("out", max_steps=5, report_to="none", use_cpu=True)
    model = AutoModelForCausalLM.from_pretrained("people/small")
    Trainer(model, arguments, train_dataset=Numbers()).train()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=2 train.py"
# world = "silent_hub"
# culprits = [[0, 1]]
# steps = ["model"]
# calls = ['AutoModel\w*\.from_pretrained']
# ///
