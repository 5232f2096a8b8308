"""transformers: a callback asks all for their skipped steps where its own was: in process 1.

The two others are in the backward of the next step.
"""

import torch
import torch.distributed as dist
from transformers import Trainer, TrainerCallback, TrainingArguments


class Small(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": (self.layer(x).squeeze(-1) - labels).pow(2).mean()}


class Rows(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 96

    def __getitem__(self, n: int) -> dict[str, torch.Tensor]:
        return {"x": torch.full((8,), n / 96), "labels": torch.tensor(n % 2 / 2)}


class Watch(TrainerCallback):
    """Stops the training if most processes have had a bad loss."""

    def __init__(self) -> None:
        self.bad = 0

    def on_step_end(self, args, state, control, **rest):  # type: ignore[no-untyped-def]
        if args.process_index == 1 and state.global_step == 3:
            self.bad += 1  # its scaler has skipped the step
        if self.bad:
            seen: list[int] = [0] * args.world_size
            dist.all_gather_object(seen, self.bad)
            control.should_training_stop = sum(map(bool, seen)) * 2 > args.world_size
            self.bad = 0


def main() -> None:
    arguments = TrainingArguments(
        output_dir="out",
        per_device_train_batch_size=4,
        max_steps=8,
        report_to=[],
        use_cpu=True,
        save_strategy="no",
        logging_steps=100,
        disable_tqdm=True,
    )
    Trainer(Small(), arguments, train_dataset=Rows(), callbacks=[Watch()]).train()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py"
# culprits = [[1]]
# culprits_by_stacks = [[0, 1, 2]]
# waiting = [0, 2]
# steps = [
#   "training", "first_batch", "first_backward", "first_step", "steady", "train",
#   "first_all_gather_object", "first_all_gather", "barrier", "teardown",
# ]
# after = ["First step done", "First backward done", ""]
# calls = ['distributed\.\w+', 'Trainer\.train', 'backward', 'on_step_end']
# causes = ["rank-conditional-collective", "collective-mismatch"]
# limit = 300
# ///
