"""init_trackers starts W&B on the main process, and W&B's server never answers."""

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader


def main() -> None:
    accelerator = Accelerator(cpu=True, log_with="wandb")
    accelerator.init_trackers("small")
    model = torch.nn.Linear(16, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(torch.randn(64, 16), batch_size=4)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for step, batch in enumerate(loader):
        loss = model(batch).pow(2).mean()
        accelerator.backward(loss)
        optimizer.step()
        accelerator.log({"loss": loss.item()}, step=step)
    accelerator.end_training()


if __name__ == "__main__":
    main()

# /// case
# command = """accelerate launch --multi_gpu --main_process_port=0 --num_machines=1 \
# --num_processes=2 --mixed_precision=no --dynamo_backend=no train.py"""
# world = "silent_wandb"
# culprits = [[0]]
# waiting = [1]
# steps = ["wandb_logger", "wandb_init"]
# calls = ['wandb\.init']
# ///
