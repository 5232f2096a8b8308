"""Ranks wait for a thread of theirs that is in a native wait, as for a stream of a GPU; rank 2's
main thread is in a native wait of its own, for a decoder that is never told to begin.

Five ranks count in shared memory how many have handed over their part; a native helper polls the
counts. Nothing of it names another rank.
"""

import argparse
import concurrent.futures
import ctypes
import mmap
import os
import subprocess
import sys

import numpy as np

C = r"""
#include <semaphore.h>
#include <time.h>
static sem_t frames;
void decoder_open(void) { sem_init(&frames, 0, 0); }
void decoder_submit(void) { sem_post(&frames); }
int decoder_wait(void) { return sem_wait(&frames); }
int stream_synchronize(volatile long *counts, int world, long wanted) {
    struct timespec pause = {0, 2000000};
    for (;;) {
        int done = 1;
        for (int i = 0; i < world; i++) done &= counts[i] >= wanted;
        if (done) return 0;
        nanosleep(&pause, 0);
    }
}
"""


class Stream:
    """What is handed over is done in order by a thread of its own."""

    def __init__(self, library: ctypes.CDLL, rank: int, world: int) -> None:
        self.library, self.rank, self.world, self.handed = library, rank, world, 0
        file = os.open("counts", os.O_RDWR)
        self.memory = mmap.mmap(file, 8 * world)
        self.counts = np.frombuffer(self.memory, dtype=np.int64)
        self.thread = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="stream")

    def all_reduce(self) -> concurrent.futures.Future[int]:
        self.handed += 1
        self.counts[self.rank] = self.handed
        return self.thread.submit(
            self.library.stream_synchronize,
            ctypes.c_void_p(self.counts.ctypes.data),
            self.world,
            ctypes.c_long(self.handed),
        )


def frames(library: ctypes.CDLL, rank: int, step: int) -> None:
    if not (rank == 2 and step == 3):  # an empty clip: nothing was submitted
        library.decoder_submit()
    library.decoder_wait()


def train(rank: int, world: int) -> None:
    library = ctypes.CDLL("./libstream.so")
    library.decoder_open()
    stream = Stream(library, rank, world)
    for step in range(6):
        frames(library, rank, step)
        stream.all_reduce().result()
        print(f"rank {rank} step {step}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--world", type=int, default=5)
    args = parser.parse_args()
    if "RANK" in os.environ:
        train(int(os.environ["RANK"]), args.world)
        return
    with open("stream.c", "w") as source:
        source.write(C)
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", "libstream.so", "stream.c"], check=True)
    with open("counts", "wb") as file:
        file.truncate(8 * args.world)
    ranks = []
    for rank in range(args.world):
        own = {"RANK": str(rank), "WORLD_SIZE": str(args.world), "LOCAL_RANK": str(rank)}
        ranks.append(subprocess.Popen([sys.executable, *sys.argv], env={**os.environ, **own}))
    sys.exit(max(one.wait() for one in ranks))


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# culprits = [[2]]
# waiting = [0, 1, 3, 4]
# steps = ["arguments"]
# after = ["Args parsed", ""]
# own_code = true
# calls = ['frames', 'decoder_wait', 'train']
# causes = ["native-call", "unknown"]
# limit = 300
# ///
