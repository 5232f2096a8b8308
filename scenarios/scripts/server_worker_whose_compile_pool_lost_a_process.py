"""An engine and two workers; TP0 compiles its kernels in a multiprocessing.Pool, one process of
which is killed in the middle (SIGKILL, for want of memory): its task is never done again.

TP1 has its kernels and waits for the next word of the engine, which reads the pipe of TP0.
"""

import argparse
import multiprocessing
import os
import signal
import time
from multiprocessing.connection import Connection

import setproctitle

spawn = multiprocessing.get_context("spawn")


def compile_kernel(number: int) -> int:
    table = [bytes(1 << 16) for _ in range(16)]
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.2)
    return len(table)


def run_worker(rank: int, pipe: Connection) -> None:
    setproctitle.setproctitle(f"VLLM::Worker_TP{rank}")
    if rank == 0:
        with spawn.Pool(2) as pool:
            pool.map(compile_kernel, range(6), chunksize=1)
    pipe.send("compiled")
    while (word := pipe.recv()) != "stop":
        pipe.send(word)


def run_engine(front: Connection) -> None:
    setproctitle.setproctitle("VLLM::EngineCore")
    pipes = []
    for rank in range(2):
        ours, theirs = spawn.Pipe()
        spawn.Process(target=run_worker, args=(rank, theirs)).start()
        theirs.close()
        pipes.append(ours)
    for one in pipes:
        one.recv()
    front.send("ready")
    front.recv()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tensor-parallel-size", type=int, default=2)
    parser.parse_args()
    ours, theirs = spawn.Pipe()
    spawn.Process(target=run_engine, args=(theirs,)).start()
    theirs.close()
    print(ours.recv(), flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --tensor-parallel-size 2"
# needs = ["setproctitle"]
# culprits = [[0]]
# waiting = [1]
# steps = ["script", "arguments"]
# after = ["", "Args parsed"]
# own_code = true
# calls = ['map', 'get', 'wait', 'run_worker']
# causes = ["pool-worker-lost", "worker-killed", "worker-dead"]
# says = ['pool|worker']
# ///
