"""All three ranks have trained; rank 1 has a writer as a process, which waits for an end mark.

The mark is put only where the writer's errors were read, so rank 1 waits for its child at its exit:
it is no daemon. The other two are gone.
"""

import multiprocessing as mp

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def write(rows: "mp.Queue[float | None]", path: str) -> None:
    with open(path, "w") as file:
        while (row := rows.get()) is not None:
            print(row, file=file, flush=True)


def main() -> None:
    torch.set_num_threads(1)
    context = mp.get_context("spawn")
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    rows: mp.Queue[float | None] = context.Queue()
    writer = context.Process(target=write, args=(rows, f"rows-{rank}.txt"), name="writer")
    writer.start()
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    errors = 0
    for step in range(30):
        loss = model(torch.randn(4, 8)).pow(2).mean()
        loss.backward()
        model.zero_grad()
        rows.put(loss.item())
        errors += rank == 1 and step == 12
    if not errors:
        rows.put(None)
    dist.barrier()
    dist.destroy_process_group()
    print(f"rank {rank} is done", flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py"
# culprits = [[1]]
# waiting = [0, 2]
# steps = ["training", "steady", "teardown", "exit", "process_group_end"]
# after = ["First step done", "First backward done", "Barrier passed", ""]
# own_code = true
# calls = ['_exit_function', 'join', 'write', 'get', 'exit']
# causes = ["child-at-exit"]
# ///
