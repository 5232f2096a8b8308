"""Ranks that replace, wrap, compare, pickle and read torch.distributed's own functions."""

import os
import socket
import subprocess
import sys

WORKER = r"""
import functools, inspect, os, pickle, sys
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

counts = {}


def counted(function):
    @functools.wraps(function)
    def inner(*arguments, **named):
        counts[function.__name__] = counts.get(function.__name__, 0) + 1
        return function(*arguments, **named)

    return inner


plain = {name: getattr(dist, name) for name in ("all_reduce", "barrier", "broadcast", "all_gather")}
print("same:", all(getattr(c10d, name) is one for name, one in plain.items()))
print("signature:", list(inspect.signature(dist.all_reduce).parameters))
print("source:", inspect.getsource(dist.barrier).splitlines()[1])
print("names:", [(one.__module__, one.__qualname__) for one in plain.values()])
print("pickled:", all(pickle.loads(pickle.dumps(one)) is one for one in plain.values()))
for name, one in plain.items():
    setattr(dist, name, counted(one))
    setattr(c10d, name, getattr(dist, name))
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()


class Reducer:
    all_reduce = staticmethod(dist.all_reduce)

    def __call__(self, value):
        work = self.all_reduce(value, async_op=True)
        work.wait()
        return value


reducer = Reducer()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
model.register_comm_hook(None, lambda state, bucket: dist.all_reduce(
    bucket.buffer(), async_op=True).get_future().then(lambda told: told.value()[0]))
for step in range(5):
    loss = model(torch.ones(2, 4) * rank).pow(2).mean()
    loss.backward()
    reducer(loss.detach())
everyone = [torch.zeros(1) for _ in range(2)]
dist.all_gather(everyone, torch.full((1,), float(rank)))
dist.barrier()
print("counted:", sorted(counts.items()), [one.item() for one in everyone])
for name, one in plain.items():
    setattr(dist, name, one)
    setattr(c10d, name, one)
dist.barrier()
print("back:", all(getattr(dist, name) is one for name, one in plain.items()))
print("grad:", [round(one.grad.sum().item(), 3) == round(one.grad.sum().item(), 3)
      for one in model.parameters()])
dist.destroy_process_group()
"""


def main() -> None:
    with open("worker_train.py", "w") as file:
        file.write(WORKER)
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    ranks = []
    for rank in range(2):
        own = {**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank)}
        own |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        words = [sys.executable, "worker_train.py"]
        ranks.append(subprocess.Popen(words, env=own, text=True, stdout=subprocess.PIPE))
    for rank, one in enumerate(ranks):
        out, _ = one.communicate()
        print(rank, one.returncode, out, flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# outcome = "ok"
# ///
