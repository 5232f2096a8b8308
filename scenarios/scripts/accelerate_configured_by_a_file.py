"""accelerate launch with a configuration file, four processes: process 2 has nothing to gather.

All its predictions were below the threshold, so it leaves gather_object() out and goes on.
"""

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(TensorDataset(torch.randn(640, 8)), batch_size=4)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    kept: list[float] = []
    for step, (batch,) in enumerate(loader):
        loss = model(batch).pow(2).mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        if accelerator.process_index != 2:
            kept.append(loss.item())
        if step % 20 == 19 and kept:
            everything = gather_object(kept)
            accelerator.print(step, len(everything))
    accelerator.wait_for_everyone()
    accelerator.print("done")
    accelerator.end_training()


if __name__ == "__main__":
    main()

# /// case
# command = "accelerate launch --config_file four.yaml train.py"
# culprits = [[2]]
# culprits_by_stacks = [[]]
# waiting = [0, 1, 3]
# steps = [
#   "training", "steady", "first_step", "first_backward", "gather", "gather_object",
#   "all_gather_object",
# ]
# after = ["First optimizer step done", "First backward done", "First step done", ""]
# own_code = true
# calls = ['backward', 'gather', 'train\.main']
# causes = ["rank-conditional-collective", "collective-mismatch", "uneven-rounds", "other-round"]
#
# [files]
# "four.yaml" = """
# compute_environment: LOCAL_MACHINE
# distributed_type: MULTI_GPU
# num_machines: 1
# num_processes: 4
# machine_rank: 0
# main_process_ip: 127.0.0.1
# main_process_port: 0
# mixed_precision: 'no'
# """
# ///
