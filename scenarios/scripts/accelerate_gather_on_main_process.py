"""The main process alone gathers the loss for its log line: gather wants every process."""

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader


def main() -> None:
    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(16, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(torch.randn(64, 16), batch_size=4)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for step, batch in enumerate(loader):
        loss = model(batch).pow(2).mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        if step == 2 and accelerator.is_main_process:
            print("loss", accelerator.gather(loss.detach()).mean())
    accelerator.end_training()


if __name__ == "__main__":
    main()

# /// case
# command = """accelerate launch --multi_gpu --main_process_port=0 --num_machines=1 \
# --num_processes=2 --mixed_precision=no --dynamo_backend=no train.py"""
# culprits = [[0]]
# culprits_by_stacks = [[0, 1]]
# steps = [
#   "training", "first_batch", "first_backward", "first_step", "steady", "all_gather",
#   "all_reduce", "first_all_gather", "first_all_reduce",
# ]
# own_code = true
# calls = ['distributed\.\w+', "gather", "backward"]
# ///
