"""mp.spawn, four ranks: a barrier with a time limit, whose error is taken for a late node's.

It is tried again for ever. Rank 2 waits for its decoder's first frame, which no thread makes.
"""

import argparse
import datetime
import threading

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

WORLD = 4


class Decoder:
    """Frames of a stream, decoded by a thread that is started with the first stream."""

    def __init__(self, streams: int) -> None:
        self.ready = threading.Condition()
        self.frames: list[torch.Tensor] = []
        for _ in range(streams):
            threading.Thread(target=self._decode, daemon=True).start()

    def _decode(self) -> None:
        with self.ready:
            self.frames.append(torch.ones(4))
            self.ready.notify()

    def first(self) -> torch.Tensor:
        with self.ready:
            self.ready.wait_for(lambda: len(self.frames) > 0)
            return self.frames[0]


def meet(store: dist.Store, rank: int) -> None:
    """Wait for all ranks, however late one is."""
    store.set(f"here/{rank}", "1")
    while True:
        try:
            store.wait([f"here/{one}" for one in range(WORLD)], datetime.timedelta(seconds=4))
            return
        except dist.DistStoreError:  # a node that is late
            pass


def train(rank: int, port: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=WORLD
    )
    store = dist.TCPStore("127.0.0.1", port + 1, WORLD, is_master=rank == 0)
    decoder = Decoder(streams=0 if rank == 2 else 1)  # its list of streams is empty
    frame = decoder.first()
    meet(store, rank)
    dist.all_reduce(frame)
    print(f"rank {rank}: {frame.sum():.0f}", flush=True)
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    args = parser.parse_args()
    mp.spawn(train, args=(args.port,), nprocs=WORLD)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --port $PORT"
# culprits = [[2]]
# waiting = [0, 1, 3]
# steps = ["process_group", "training"]
# after = ["Process group ready", ""]
# own_code = true
# calls = ['first', 'wait_for', 'Condition', 'train\.train']
# causes = ["unknown", "thread-stuck", "nobody-sends", "dead-producer", "deadlock"]
# limit = 240
# ///
