"""Healthy and silent: transformers' Trainer, process 2 of three waits in queue.Queue.join() for its
uploader's thread, which sleeps for the pause that a server asked for; the others are in backward.
"""

import argparse
import queue
import threading
import time

import torch
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
        return 96

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = torch.arange(index % 64, index % 64 + 8)
        return {"input_ids": tokens, "labels": tokens}


class Uploads(TrainerCallback):
    def __init__(self, pause: float) -> None:
        self.steps: queue.Queue[float] = queue.Queue()
        self.pause = pause
        threading.Thread(target=self._upload, daemon=True).start()

    def _upload(self) -> None:
        while True:
            time.sleep(self.steps.get())
            self.steps.task_done()

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **rest: object,
    ) -> None:
        asked_to_pause = args.process_index == 2 and state.global_step == 4
        self.steps.put(self.pause if asked_to_pause else 0.01)
        if state.global_step % 2 == 0:
            self.steps.join()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
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
        callbacks=[Uploads(args.seconds)],
    ).train()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py --seconds $AMOUNT"
# outcome = "ok"
# amount = 50.0
# ///
