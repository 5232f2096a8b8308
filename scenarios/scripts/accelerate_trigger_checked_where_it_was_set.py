"""Accelerate's trigger tells all processes of an event on one. Process 2 sets it where its loss has
jumped and checks it there as well; the other three do not check it, and gather their losses.
"""

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader


class Guard:
    """Takes the weights of the last good step again if a loss jumps on any process."""

    def __init__(self, accelerator: Accelerator, model: torch.nn.Module, limit: float) -> None:
        self.accelerator, self.model, self.limit = accelerator, model, limit
        self.good = {name: value.clone() for name, value in model.state_dict().items()}

    def _restored(self) -> bool:
        self.accelerator.set_trigger()
        if self.accelerator.check_trigger():
            self.model.load_state_dict(self.good)
            return True
        return False

    def after(self, loss: torch.Tensor) -> bool:
        return loss.item() > self.limit and self._restored()


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(16, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(torch.randn(400, 16), batch_size=4)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    guard = Guard(accelerator, model, limit=1e3)
    for step, batch in enumerate(loader):
        if step == 6 and accelerator.process_index == 2:
            batch = batch * 1e4  # a record in other units
        loss = model(batch).pow(2).mean()
        guard.after(loss.detach())
        losses = accelerator.gather(loss.detach())
        if accelerator.is_main_process:
            print(f"step {step}: {losses.mean().item():.3f}", flush=True)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    accelerator.end_training()


if __name__ == "__main__":
    main()

# /// case
# command = """accelerate launch --multi_gpu --main_process_port=0 --num_machines=1 \
# --num_processes=4 --mixed_precision=no --dynamo_backend=no train.py"""
# culprits = [[2]]
# culprits_by_stacks = [[]]
# waiting = [0, 1, 3]
# steps = [
#   "training", "steady", "first_backward", "first_step", "first_batch", "first_all_reduce",
#   "all_reduce", "first_all_gather", "all_gather",
# ]
# after = ["First step done", "First backward done", "First batch there", ""]
# own_code = true
# calls = ['distributed\.\w+', 'check_trigger', 'reduce', '_restored', 'Guard']
# causes = ["rank-conditional-collective", "collective-mismatch"]
# ///
