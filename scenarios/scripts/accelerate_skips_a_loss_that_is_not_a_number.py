"""accelerate, six processes: process 2 goes on to its next batch where its loss is NaN, in step 37.

It is a batch ahead from then on, and in wait_for_everyone() when the others reduce their last one.
"""

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset


def make_data(world: int) -> TensorDataset:
    features = torch.randn(4 * 50 * world, 8, generator=torch.Generator().manual_seed(3))
    features[4 * (37 * world + 2)] = float("nan")  # one broken sample
    return TensorDataset(features)


def main() -> None:
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = DataLoader(make_data(accelerator.num_processes), batch_size=4)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for step, (batch,) in enumerate(loader):
        loss = model(batch).pow(2).mean()
        if torch.isnan(loss):
            print(f"process {accelerator.process_index}: step {step} skipped", flush=True)
            continue
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    accelerator.wait_for_everyone()
    accelerator.print("done")
    accelerator.end_training()


if __name__ == "__main__":
    main()

# /// case
# command = """accelerate launch --multi_gpu --main_process_port=0 --num_machines=1 \
#   --num_processes=6 --mixed_precision=no --dynamo_backend=no train.py"""
# culprits = [[2]]
# waiting = [0, 1, 3, 4, 5]
# steps = ["training", "steady", "barrier", "first_barrier", "wait_for_everyone"]
# after = ["First optimizer step done", "First backward done", "First step done", "Training", ""]
# own_code = true
# calls = ['wait_for_everyone', 'barrier']
# causes = ["peer-out-of-batches", "uneven-rounds", "uneven-batches"]
# ///
