"""The first process maps a long data set, and the others wait for it."""

import argparse
import math
from typing import Any

from datasets import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--processes", type=int)
    args = parser.parse_args()

    def features(row: dict[str, Any]) -> dict[str, Any]:
        noise = sum(math.sin(row["number"] + step) for step in range(40_000))
        tokens = [row["number"] % 100 + (noise > 0)] * 8
        return {"input_ids": tokens, "labels": tokens}

    arguments = TrainingArguments("out", max_steps=8, report_to="none", use_cpu=True)
    with arguments.main_process_first(desc="map"):
        data = Dataset.from_dict({"number": list(range(args.rows))})
        data = data.map(features, num_proc=args.processes)
    shape = GPT2Config(vocab_size=128, n_positions=16, n_embd=16, n_layer=1, n_head=1)
    Trainer(GPT2LMHeadModel(shape), arguments, train_dataset=data).train()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=2 train.py --rows $AMOUNT"
# outcome = "ok"
# limit = 400.0
# ///
