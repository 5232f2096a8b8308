"""Rank 2 watches a folder for the index by inotify; it was put there before rank 2 began to watch.

It looks whether the file is there, is slow to begin, and reads events of which none will come. The
others are in the first all_reduce.
"""

import ctypes
import os
import struct
import time
from pathlib import Path

import torch
import torch.distributed as dist

FOLDER = Path("index")
MOVED_TO = 0x80
libc = ctypes.CDLL(None, use_errno=True)


def watch_for(name: str, slow: float) -> Path:
    """Return the file as soon as it is in the folder."""
    file = FOLDER / name
    if file.exists():
        return file
    time.sleep(slow)  # reads its settings
    events = libc.inotify_init1(os.O_CLOEXEC)
    if libc.inotify_add_watch(events, os.fsencode(FOLDER), MOVED_TO) < 0:
        raise OSError(ctypes.get_errno(), "inotify_add_watch")
    while True:
        data, at = os.read(events, 4096), 0
        while at < len(data):
            _, _, _, length = struct.unpack_from("iIII", data, at)
            if data[at + 16 : at + 16 + length].rstrip(b"\0").decode() == name:
                os.close(events)
                return file
            at += 16 + length


def build_index(name: str) -> Path:
    time.sleep(3)  # sorts
    part = FOLDER / f"{name}.part"
    part.write_text("0 17 42 99")
    return part.rename(FOLDER / name)


def main() -> None:
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo")
    FOLDER.mkdir(exist_ok=True)
    dist.barrier()
    if rank == 0:
        file = build_index("train.idx")
    else:
        file = watch_for("train.idx", slow=6 if rank == 2 else 0)
    offsets = torch.tensor([int(one) for one in file.read_text().split()])
    dist.all_reduce(offsets, op=dist.ReduceOp.MAX)
    print(f"rank {rank}: {offsets.tolist()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py"
# culprits = [[2]]
# waiting = [0, 1, 3]
# steps = [
#   "process_group", "training", "first_barrier", "barrier", "first_all_reduce", "first_collective",
# ]
# after = ["Barrier passed", "Process group ready", ""]
# own_code = true
# calls = ['watch_for', 'read', 'train\.main']
# says = ['inotify']
# ///
