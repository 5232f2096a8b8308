"""A callback of process 2 posts its metrics to a dashboard that accepts and never answers.

Each try has a limit of two seconds, and urllib3 tries again, with longer and longer pauses between
them; the other processes wait for process 2's gradients.
"""

import argparse
from typing import Any

import requests
import torch
from requests.adapters import HTTPAdapter
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
from urllib3.util.retry import Retry


class Numbers(Dataset[dict[str, torch.Tensor]]):
    def __len__(self) -> int:
        return 96

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = torch.arange(index, index + 8)
        return {"input_ids": tokens, "labels": tokens}


def small() -> GPT2LMHeadModel:
    shape = GPT2Config(vocab_size=128, n_positions=16, n_embd=16, n_layer=1, n_head=1)
    return GPT2LMHeadModel(shape)


class Dashboard(TrainerCallback):
    """Tells a dashboard how far the training is."""

    def __init__(self, address: str) -> None:
        patience = Retry(total=500, backoff_factor=0.2, backoff_max=4, allowed_methods=None)
        self.address, self.session = address, requests.Session()
        self.session.mount("http://", HTTPAdapter(max_retries=patience))

    def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        if state.global_step == 2:
            told = {"step": state.global_step}
            self.session.post(f"{self.address}/metrics", json=told, timeout=2)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dashboard", required=True)
    args = parser.parse_args()
    arguments = TrainingArguments("out", max_steps=8, report_to="none", use_cpu=True)
    callbacks = [Dashboard(args.dashboard)] if arguments.process_index == 2 else []
    Trainer(small(), arguments, train_dataset=Numbers(), callbacks=callbacks).train()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py --dashboard $SERVICE"
# world = "silent_service"
# culprits = [[2]]
# waiting = [0, 1]
# steps = ["training", "train", "steady", "first_step"]
# after = ["First step done", ""]
# own_code = true
# calls = ['requests', 'urllib3', 'post', 'on_step_end', 'sleep', 'urlopen']
# causes = ["endpoint-silent", "retry-loop", "polling-loop"]
# ///
