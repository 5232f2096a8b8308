"""accelerate, LocalSGD: process 2 of four has it off in its own configuration, and reduces its
gradients in each step; the others reduce nothing until their eighth.
"""

import json
import pathlib

import torch
from accelerate import Accelerator
from accelerate.local_sgd import LocalSGD
from torch.utils.data import DataLoader, TensorDataset


def settings(process: int) -> dict[str, bool]:
    file = pathlib.Path(f"local-{process}.json")
    return json.loads(file.read_text()) if file.exists() else {"local_sgd": True}


def main() -> None:
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(16, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loader = DataLoader(TensorDataset(torch.randn(512, 16)), batch_size=8)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    enabled = settings(accelerator.process_index)["local_sgd"]
    with LocalSGD(accelerator, model, local_sgd_steps=8, enabled=enabled) as local:
        for step, (batch,) in enumerate(loader):
            loss = model(batch).pow(2).mean()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            local.step()
            print(f"process {accelerator.process_index} step {step}", flush=True)
    accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()

# /// case
# command = """accelerate launch --multi_gpu --main_process_port=0 --num_machines=1 \
# --num_processes=4 --mixed_precision=no --dynamo_backend=no train.py"""
# files = { "local-2.json" = "{\"local_sgd\": false}" }
# culprits = [[2]]
# waiting = [0, 1, 3]
# steps = [
#   "training", "steady", "first_step", "first_batch", "first_backward", "barrier",
#   "first_barrier", "first_all_reduce", "all_reduce",
# ]
# after = ["First step done", "Prepared by accelerate", "First batch there", ""]
# own_code = true
# calls = ['distributed\.\w+', 'backward', 'LocalSGD', 'step', 'reduce', 'wait_for_everyone']
# causes = ["rank-conditional-collective", "collective-mismatch", "uneven-rounds"]
# ///
