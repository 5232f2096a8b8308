"""Rank 1's reader puts a sample into a queue that cannot be pickled: it is dropped, with a message.

The feeder thread of a multiprocessing queue says so and goes on; the reader believes that it was
sent and waits for the next order, the rank waits for the sample, and the others for the rank.
"""

import multiprocessing as mp
import threading

import torch
import torch.distributed as dist


class Sample:
    def __init__(self, place: int, is_broken: bool) -> None:
        self.values = [float(place)] * 16
        self.guard = threading.Lock() if is_broken else None


def read_samples(orders: mp.Queue, samples: mp.Queue, rank: int) -> None:
    while (place := orders.get()) is not None:
        samples.put(Sample(place, rank == 1 and place == 5))


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.set_num_threads(1)
    context = mp.get_context("fork")
    orders, samples = context.Queue(), context.Queue()
    reader = context.Process(target=read_samples, args=(orders, samples, rank), daemon=True)
    reader.start()
    weight = torch.zeros(16)
    for place in range(12):
        orders.put(place)
        weight += torch.tensor(samples.get().values)
        dist.all_reduce(weight)
        weight /= dist.get_world_size()
    orders.put(None)
    reader.join()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py"
# culprits = [[1]]
# waiting = [0, 2]
# steps = ["first_all_reduce", "all_reduce", "training"]
# after = ["First all_reduce done"]
# own_code = true
# calls = ["get", "main"]
# causes = ["worker-stuck", "dead-producer", "child-process-stuck", "deadlock", "unknown"]
# ///
