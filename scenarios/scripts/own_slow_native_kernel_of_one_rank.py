"""Healthy and slow: rank 1 of three runs one long kernel, as a GPU would, in a native thread.

Its main thread waits in a C call for that thread; the others look in a C call at a flag that they
share, as a transport of GPUs does.
"""

import argparse
import ctypes
import mmap
import os
import subprocess
from pathlib import Path

SOURCE = """
#include <pthread.h>
#include <time.h>
#include <unistd.h>
static double now(void) {
    struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + 1e-9 * t.tv_nsec;
}
static void *kernel(void *given) {
    double until = now() + *(double *)given; volatile double x = 1.0;
    while (now() < until) for (int i = 0; i < 100000; i++) x = x * 1.0000001;
    return 0;
}
void launch_and_wait(double seconds) {
    pthread_t stream; pthread_create(&stream, 0, kernel, &seconds); pthread_join(stream, 0);
}
void arrive(volatile int *flags, int rank, int step) { flags[rank] = step; }
void wait_for_all(volatile int *flags, int world, int step) {
    for (int rank = 0; rank < world; rank++) while (flags[rank] < step) usleep(200);
}
"""


def library(rank: int) -> ctypes.CDLL:
    source, built = Path(f"device{rank}.c"), Path(f"device{rank}.so").absolute()
    source.write_text(SOURCE)
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-pthread", "-o", built, source], check=True)
    return ctypes.CDLL(str(built))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, required=True)
    args = parser.parse_args()
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = library(rank)
    with open("flags", "a+b") as file:
        file.truncate(4096)
        flags = (ctypes.c_int * 16).from_buffer(mmap.mmap(file.fileno(), 4096))
    for step in range(1, 5):
        is_long = rank == 1 and step == 3
        device.launch_and_wait(ctypes.c_double(args.seconds if is_long else 0.2))
        device.arrive(flags, rank, step)
        device.wait_for_all(flags, world, step)
        print(f"rank {rank} step {step}", flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py --seconds $AMOUNT"
# outcome = "ok"
# amount = 60.0
# limit = 240.0
# ///
