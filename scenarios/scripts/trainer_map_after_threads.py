"""datasets' map forks its processes after torch's threads were used, and they compute with torch
(huggingface/datasets#5094).
"""

from typing import Any

import torch
from datasets import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


def small() -> GPT2LMHeadModel:
    shape = GPT2Config(vocab_size=128, n_positions=16, n_embd=16, n_layer=1, n_head=1)
    return GPT2LMHeadModel(shape)


def tokens(row: dict[str, Any]) -> dict[str, Any]:
    picture = torch.rand(2000, 2000).exp().sum()
    ids = [int(picture) % 100] * 8
    return {"input_ids": ids, "labels": ids}


def main() -> None:
    torch.set_num_threads(2)
    arguments = TrainingArguments("out", max_steps=5, report_to="none", use_cpu=True)
    print("as it is in the first row:", tokens({"number": 0}))
    data = Dataset.from_dict({"number": list(range(64))}).map(tokens, num_proc=2)
    Trainer(small(), arguments, train_dataset=data).train()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=2 train.py"
# culprits = [[0, 1]]
# steps = ["data_module", "training", "prepare_data", "process_group", "map", "dataset_map"]
# own_code = true
# calls = ['Dataset\.map']
# ///
