"""All four ranks have trained; rank 3's executor reports its last metric to a silent service.

Python joins the threads of an executor at its exit: rank 3 never ends, and torchrun waits for it.
"""

import concurrent.futures
import json
import os
import urllib.request

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

REPORTERS = concurrent.futures.ThreadPoolExecutor(max_workers=2, thread_name_prefix="reporter")


def report(step: int, loss: float) -> None:
    body = json.dumps({"step": step, "loss": loss}).encode()
    urllib.request.urlopen(os.environ["SERVICE"] + "/metrics", data=body).read()


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, last = dist.get_rank(), 30
    model = DistributedDataParallel(torch.nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(last + 1):
        loss = model(torch.randn(8, 16)).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if rank == 3 and step == last:
            REPORTERS.submit(report, step, loss.item())
    dist.barrier()
    dist.destroy_process_group()
    print(f"rank {rank} is done", flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py"
# world = "silent_service"
# culprits = [[3]]
# waiting = [0, 1, 2]
# steps = ["training", "teardown", "exit", "process_group_end", "destroy_process_group"]
# after = ["First step done", "Process group destroyed", "Barrier passed", ""]
# own_code = true
# calls = ['report', 'urlopen', '_python_exit', 'shutdown', 'join', 'ThreadPoolExecutor', 'exit']
# causes = ["endpoint-silent", "thread-at-exit"]
# ///
