"""transformers: a callback asks for an evaluation where the loss jumped: on process 2 of four.

Process 2 is in the evaluation, which gathers from all; the others are in the next step.
"""

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments


class Small(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        scores = self.layer(x).squeeze(-1)
        return {"loss": (scores - labels).pow(2).mean(), "logits": scores}


class Rows(torch.utils.data.Dataset):
    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, n: int) -> dict[str, torch.Tensor]:
        return {"x": torch.full((8,), n / 96), "labels": torch.tensor(n % 2 / 2)}


class Jumps(TrainerCallback):
    """Looks closer where a gradient is much larger than those before it."""

    def __init__(self) -> None:
        self.norms: list[float] = []

    def on_pre_optimizer_step(self, args, state, control, model=None, **rest):  # type: ignore[no-untyped-def]
        norm = sum(float(one.grad.norm()) for one in model.parameters() if one.grad is not None)
        if args.process_index == 2 and state.global_step == 4:
            norm *= 100  # its shard has an outlier; its gradient is measured before the average
        self.norms.append(norm)

    def on_step_end(self, args, state, control, **rest):  # type: ignore[no-untyped-def]
        if self.norms[-1] > 20 * min(self.norms):
            control.should_evaluate = True


def main() -> None:
    torch.set_num_threads(1)
    arguments = TrainingArguments(
        output_dir="out",
        per_device_train_batch_size=4,
        max_steps=12,
        report_to=[],
        use_cpu=True,
        save_strategy="no",
        logging_steps=100,
        disable_tqdm=True,
    )
    Trainer(
        Small(), arguments, train_dataset=Rows(192), eval_dataset=Rows(64), callbacks=[Jumps()]
    ).train()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py"
# culprits = [[2]]
# culprits_by_stacks = [[]]
# waiting = [0, 1, 3]
# steps = [
#   "training", "first_batch", "first_backward", "first_step", "steady", "train", "evaluate",
#   "first_all_gather", "all_gather", "barrier", "teardown", "evaluation",
# ]
# after = ["First step done", "First backward done", ""]
# own_code = true
# calls = ['distributed\.\w+', 'Trainer\.\w+', 'backward', 'evaluat', 'gather']
# causes = ["rank-conditional-collective", "collective-mismatch", "uneven-rounds", "gloo-mismatch"]
# limit = 300
# ///
