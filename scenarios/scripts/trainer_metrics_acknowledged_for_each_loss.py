"""A callback of each of three ranks sends its logs to a process beside it, and waits until they are
taken. That process acknowledges a loss; rank 1 also sends its peak of memory, once, without one.

Rank 1 waits for the acknowledgement, and its helper for the next message.
"""

import multiprocessing
from multiprocessing.connection import Connection

import torch
from torch.utils.data import Dataset
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)


class Numbers(Dataset[dict[str, torch.Tensor]]):
    def __len__(self) -> int:
        return 256

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = torch.arange(index % 64, index % 64 + 8)
        return {"input_ids": tokens, "labels": tokens}


def keep_metrics(messages: Connection, name: str) -> None:
    with open(name, "w") as file:
        while True:
            message = messages.recv()
            file.write(f"{message}\n")
            if "loss" in message:
                messages.send(True)


class Recorder:
    def __init__(self, name: str) -> None:
        context = multiprocessing.get_context("spawn")
        self.messages, theirs = context.Pipe()
        context.Process(
            target=keep_metrics, args=(theirs, name), name="metrics", daemon=True
        ).start()
        theirs.close()

    def __call__(self, **message: float) -> None:
        self.messages.send(message)
        self.messages.recv()


class Metrics(TrainerCallback):
    def on_train_begin(self, args: TrainingArguments, *given: object, **rest: object) -> None:
        self.record = Recorder(f"metrics-{args.process_index}.txt")

    def on_step_end(self, args: TrainingArguments, state, control, **rest: object) -> None:
        self.record(step=state.global_step, loss=0.0)
        if args.process_index == 1 and state.global_step == 4:
            self.record(step=state.global_step, peak=17.0)


def main() -> None:
    torch.set_num_threads(1)
    arguments = TrainingArguments(
        "out",
        max_steps=10,
        per_device_train_batch_size=2,
        report_to="none",
        use_cpu=True,
        save_strategy="no",
    )
    shape = GPT2Config(vocab_size=128, n_positions=16, n_embd=16, n_layer=1, n_head=1)
    Trainer(
        GPT2LMHeadModel(shape), arguments, train_dataset=Numbers(), callbacks=[Metrics()]
    ).train()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py"
# culprits = [[1]]
# waiting = [0, 2]
# steps = ["training", "first_batch", "first_backward", "first_step", "steady", "train"]
# calls = ['recv', 'Recorder', '__call__', 'on_step_end']
# causes = ["deadlock", "child-process-stuck", "nobody-sends"]
# says = ['keep_metrics|metrics|recv']
# ///
