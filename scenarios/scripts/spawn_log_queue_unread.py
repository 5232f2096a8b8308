"""mp.spawn: the ranks log through a queue, whose reader in their parent died of a bad record.

Rank 1 logs each of its samples: the queue, which holds few records, is full, and put() waits.
"""

import argparse
import logging
import logging.handlers
import multiprocessing
import threading

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel


class Patient(logging.handlers.QueueHandler):
    def enqueue(self, record: logging.LogRecord) -> None:
        self.queue.put(record)


def write(records: "multiprocessing.Queue[logging.LogRecord]") -> None:
    with open("train.log", "w", encoding="utf-8") as file:
        while True:
            record = records.get()
            file.write(f"{record.levelname:7} {record.step:6d} {record.getMessage()}\n")


def train(rank: int, world: int, port: int, records: "multiprocessing.Queue[object]") -> None:
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world
    )
    log = logging.getLogger("train")
    log.addHandler(Patient(records))
    log.setLevel(logging.DEBUG if rank == 1 else logging.WARNING)
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    for step in range(30):
        rows = torch.randn(8, 16)
        for row in rows:
            log.debug("norm %.3f", row.norm(), extra={"step": step})
        loss = model(rows).pow(2).mean()
        loss.backward()
        log.debug("loss %.3f", loss, extra={"step": None if step == 2 else step})
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    args = parser.parse_args()
    records = mp.get_context("spawn").Queue(64)
    threading.Thread(target=write, args=(records,), name="log writer", daemon=True).start()
    mp.spawn(train, args=(3, args.port, records), nprocs=3)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --port $PORT"
# culprits = [[1]]
# waiting = [0, 2]
# steps = ["training", "first_backward", "steady", "ddp"]
# after = ["First backward done", "DDP ready", ""]
# own_code = true
# calls = ['Queue\.put', '\bput$', 'enqueue', 'debug', 'emit']
# causes = ["dead-owner", "unknown"]
# limit = 300
# ///
