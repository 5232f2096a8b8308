"""accelerate: the last of four processes saves the state each tenth step, and only that one.

save_state() meets all processes where it names its folders by itself; the others are in the next
step.
"""

import torch
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration


class Schedule:
    """When the state is saved, and by whom."""

    def __init__(self, accelerator: Accelerator, every: int) -> None:
        self.accelerator, self.every = accelerator, every

    def after(self, step: int) -> None:
        if step % self.every == self.every - 1:
            self._save()

    def _save(self) -> None:
        if self.accelerator.is_last_process:  # it has the least to do
            self.accelerator.save_state()


def main() -> None:
    torch.set_num_threads(1)
    project = ProjectConfiguration(
        project_dir="project", automatic_checkpoint_naming=True, total_limit=2
    )
    accelerator = Accelerator(cpu=True, project_config=project)
    model = torch.nn.Linear(16, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model, optimizer = accelerator.prepare(model, optimizer)
    schedule = Schedule(accelerator, 10)
    for step in range(30):
        accelerator.backward(model(torch.randn(8, 16)).pow(2).mean())
        optimizer.step()
        optimizer.zero_grad()
        accelerator.print(f"step {step}", flush=True)
        schedule.after(step)
    accelerator.end_training()


if __name__ == "__main__":
    main()

# /// case
# command = """accelerate launch --multi_gpu --main_process_port=0 --num_machines=1 \
# --num_processes=4 --mixed_precision=no --dynamo_backend=no train.py"""
# culprits = [[3]]
# culprits_by_stacks = [[]]
# waiting = [0, 1, 2]
# steps = [
#   "training", "steady", "first_step", "first_backward", "barrier", "first_barrier", "save_state",
#   "checkpoint", "prepare",
# ]
# after = ["First step done", "First backward done", "First barrier done", ""]
# own_code = true
# calls = ['save_state', 'barrier', 'wait_for_everyone', '_save', 'backward']
# causes = ["rank-conditional-collective", "collective-mismatch"]
# ///
