"""Pools of each start method, below a main guard."""

import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor

import safetensors


def square(n: int) -> tuple[int, str, list[str], str]:
    return n * n, __name__, sys.argv[1:], safetensors.__name__


if __name__ == "__main__":
    for method in ("spawn", "fork", "forkserver"):
        context = multiprocessing.get_context(method)
        with ProcessPoolExecutor(2, mp_context=context) as pool:
            print(method, sorted(pool.map(square, range(4))))

# /// case
# command = "python train.py z"
# outcome = "ok"
# ///
