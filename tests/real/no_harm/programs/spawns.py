"""Gives functions of libraries to workers, before the watch is over and after."""

import concurrent.futures
import functools
import multiprocessing

import torch.optim.optimizer
from datasets.load import load_dataset
from torch import load


def work(function, value):
    return function(value)[0]


def main():
    optimizer = torch.optim.optimizer.SGD()
    for epoch in range(2):
        for method in ("spawn", "forkserver"):
            context = multiprocessing.get_context(method)
            pool = concurrent.futures.ProcessPoolExecutor(1, mp_context=context)
            with pool:
                for function in (load, load_dataset, functools.partial(load, third=4)):
                    assert pool.submit(work, function, epoch).result() == epoch
        for _ in range(10):
            optimizer.step()
        print("epoch", epoch, flush=True)


if __name__ == "__main__":
    main()
