"""Each rank unpacks into its own cache, which a folder locks, for NFS; a download that was killed
has left that of rank 2 of four.
"""

import os
import time
from contextlib import contextmanager

import torch
import torch.distributed as dist


@contextmanager
def lock_folder(path: str):
    while True:
        try:
            os.mkdir(path)
            break
        except FileExistsError:
            time.sleep(0.5)
    try:
        yield
    finally:
        os.rmdir(path)


def unpack(rank: int) -> int:
    cache = f"cache-{rank}"
    os.makedirs(cache, exist_ok=True)
    with lock_folder(f"{cache}/data.lock"), open(f"{cache}/data.txt", "w") as file:
        return file.write("unpacked")


def main() -> None:
    dist.init_process_group("gloo")
    size = torch.tensor([unpack(dist.get_rank())])
    dist.all_reduce(size)
    print(dist.get_rank(), size.item(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "bash start.sh"
# culprits = [[2]]
# waiting = [0, 1, 3]
# steps = ["script", "training", "process_group"]
# after = ["Process group ready", ""]
# own_code = true
# calls = ['time\.sleep', 'mkdir', 'lock_folder']
# causes = ["polling-loop", "lock-file-left", "lock-file-without-owner", "lock-not-to-be-had"]
# [files]
# "start.sh" = '''
# mkdir -p cache-2/data.lock  # by a job that was killed yesterday
# exec torchrun --standalone --nproc_per_node=4 train.py
# '''
# ///
