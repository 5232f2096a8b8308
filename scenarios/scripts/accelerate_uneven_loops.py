"""Process 1 stops early by its own loss, the others go on: they reduce gradients with nobody."""

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader


def main() -> None:
    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(256, 256)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    loader = DataLoader(torch.randn(64, 256), batch_size=4)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    patience = 5 - 2 * accelerator.process_index
    for step, batch in enumerate(loader):
        if step >= patience:
            break
        accelerator.backward(model(batch).pow(2).mean())
        optimizer.step()
        optimizer.zero_grad()
    accelerator.wait_for_everyone()
    accelerator.print("done")


if __name__ == "__main__":
    main()

# /// case
# command = """accelerate launch --multi_gpu --main_process_port=0 --num_machines=1 \
# --num_processes=2 --mixed_precision=no --dynamo_backend=no train.py"""
# culprits = [[1]]
# waiting = [0]
# culprits_by_stacks = [[0, 1]]
# steps = [
#   "training", "first_step", "first_batch", "steady", "teardown", "barrier", "first_barrier",
# ]
# own_code = true
# calls = ['distributed\.\w+', "wait_for_everyone", "backward"]
# ///
