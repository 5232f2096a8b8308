"""transformers' Trainer: a callback waits until its uploader's queue is done, queue.Queue.join().

Process 1 of three skips an empty file without task_done(); both of its threads wait for each other.
"""

import queue
import threading
from pathlib import Path

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
    def __init__(self) -> None:
        self.files: queue.Queue[Path] = queue.Queue()
        threading.Thread(target=self._upload, daemon=True).start()

    def _upload(self) -> None:
        while True:
            file = self.files.get()
            if file.stat().st_size == 0:
                continue
            file.rename(file.with_suffix(".uploaded"))
            self.files.task_done()

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **rest: object,
    ) -> None:
        file = Path(f"trace-{args.process_index}-{state.global_step}.txt")
        empty = args.process_index == 1 and state.global_step == 4
        file.write_text("" if empty else f"step {state.global_step}\n")
        self.files.put(file)
        if state.global_step % 3 == 0:
            self.files.join()


def main() -> None:
    torch.set_num_threads(1)
    arguments = TrainingArguments(
        "out",
        max_steps=9,
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
        callbacks=[Uploads()],
    ).train()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py"
# culprits = [[1]]
# waiting = [0, 2]
# steps = ["training", "first_batch", "first_backward", "first_step", "steady", "train"]
# after = ["First step done", ""]
# own_code = true
# calls = ['on_step_end', 'join', 'train']
# causes = ["deadlock", "thread-stuck", "unknown", "nobody-sends", "dead-producer",
#   "tasks-not-marked-done"]
# ///
