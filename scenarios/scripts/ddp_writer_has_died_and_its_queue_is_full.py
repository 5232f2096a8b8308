"""Each rank hands its rows to a thread that writes them; that of rank 1 died of a row with no time.

The queue has room for sixteen more. Then rank 1 waits in put() for a thread that is gone, and the
others for rank 1.
"""

import csv
import queue
import threading

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class RowWriter:
    """Writes the rows of a rank into its file, in the background."""

    def __init__(self, rank: int) -> None:
        self.rows: queue.Queue[dict[str, float | None] | None] = queue.Queue(maxsize=16)
        self.path = f"rows-{rank}.csv"
        self.thread = threading.Thread(target=self._write, name="row-writer", daemon=True)
        self.thread.start()

    def put(self, row: dict[str, float | None]) -> None:
        self.rows.put(row)

    def _write(self) -> None:
        with open(self.path, "w", newline="") as file:
            writer = csv.writer(file)
            while (row := self.rows.get()) is not None:
                writer.writerow([f"{row['loss']:.4f}", f"{row['seconds']:.2f}"])

    def close(self) -> None:
        self.rows.put(None)
        self.thread.join()


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(torch.nn.Linear(16, 16))
    rows = RowWriter(rank)
    for step in range(60):
        loss = model(torch.randn(4, 16)).pow(2).mean()
        loss.backward()
        model.zero_grad()
        late = rank == 1 and step == 9
        rows.put({"loss": loss.item(), "seconds": None if late else 0.1})
        if rank == 0:
            print(f"step {step}", flush=True)
    rows.close()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py"
# culprits = [[1]]
# waiting = [0, 2]
# steps = ["training", "steady", "first_step", "first_backward"]
# after = ["First backward done", "First step done", ""]
# own_code = true
# calls = ['put']
# causes = ["dead-producer"]
# ///
