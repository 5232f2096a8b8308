"""The first process maps the data set, and its function asks a server that never answers; the
others wait in main_process_first (huggingface/transformers#17106).
"""

import argparse
import urllib.request
from typing import Any

from datasets import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


def small() -> GPT2LMHeadModel:
    shape = GPT2Config(vocab_size=128, n_positions=16, n_embd=16, n_layer=1, n_head=1)
    return GPT2LMHeadModel(shape)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pictures", required=True)
    args = parser.parse_args()

    def fetch(row: dict[str, Any]) -> dict[str, Any]:
        urllib.request.urlopen(f"{args.pictures}/{row['number']}").read()
        return {"input_ids": [row["number"]] * 8, "labels": [row["number"]] * 8}

    arguments = TrainingArguments("out", max_steps=5, report_to="none", use_cpu=True)
    with arguments.main_process_first(desc="map"):
        data = Dataset.from_dict({"number": list(range(64))}).map(fetch)
    Trainer(small(), arguments, train_dataset=data).train()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=2 train.py --pictures $SERVICE"
# world = "silent_service"
# culprits = [[0]]
# waiting = [1]
# steps = [
#   "data_module", "training", "prepare_data", "process_group", "map", "train", "dataset_map",
# ]
# after = ["TrainingArguments ready"]
# own_code = true
# calls = ["map", "urlopen"]
# ///
