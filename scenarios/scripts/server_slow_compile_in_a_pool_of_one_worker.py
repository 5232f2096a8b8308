"""Healthy and slow: three workers of tensor parallelism; TP1 has its kernels compiled by a pool of
two processes that run gcc, TP0 and TP2 have them in their cache and wait in a barrier; all are
ready then.
"""

import concurrent.futures
import multiprocessing
import os
import subprocess
import sys

import setproctitle
import torch.distributed as dist

spawn = multiprocessing.get_context("spawn")
WORLD = 3
LINE = "double f{n}(double x) {{ for (int i = 0; i < 50; i++) x = x * {n}.5 + i; return x; }}\n"


def compile_kernel(number: int, lines: int) -> int:
    source = f"kernel{number}.c"
    with open(source, "w") as file:
        file.writelines(LINE.format(n=n) for n in range(lines))
    words = ["gcc", "-O3", "-funroll-all-loops", "-shared", "-fPIC", source, "-o", f"{source}.so"]
    return subprocess.run(words, check=True).returncode


def work(rank: int, port: int, lines: int, ready: multiprocessing.connection.Connection) -> None:
    setproctitle.setproctitle(f"textserve::worker_TP{rank}")
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo", rank=rank, world_size=WORLD)
    if rank == 1:
        with concurrent.futures.ProcessPoolExecutor(2, mp_context=spawn) as pool:
            list(pool.map(compile_kernel, range(6), [lines] * 6))
    dist.barrier()
    ready.send(rank)
    dist.destroy_process_group()


def main(port: int, lines: int) -> None:
    setproctitle.setproctitle("textserve::engine")
    pipes = [spawn.Pipe(duplex=False) for _ in range(WORLD)]
    workers = [
        spawn.Process(target=work, args=(rank, port, lines, pipes[rank][1]))
        for rank in range(WORLD)
    ]
    for one in workers:
        one.start()
    for readable, _ in pipes:
        print(f"worker {readable.recv()} is ready", flush=True)
    for one in workers:
        one.join()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(float(sys.argv[2])))

# /// case
# command = "python train.py $PORT $AMOUNT"
# outcome = "ok"
# needs = ["setproctitle"]
# amount = 1200.0
# limit = 300
# ///
