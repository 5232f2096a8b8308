"""A launcher starts the two shards of a model as programs and chooses a free port for each: shard 1
looks for the store of the group at a port at which nobody listens, shard 0 serves it at another.

The launcher says every ten seconds that it waits for shard 0 to be ready.
"""

import os
import pathlib
import socket
import subprocess
import sys
import time


def find_free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def start_shard(rank: int, world: int) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ,
        "RANK": str(rank),
        "WORLD_SIZE": str(world),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(find_free_port()),
    }
    return subprocess.Popen([sys.executable, "-u", "shard.py"], env=environment)


def main() -> None:
    shards = [start_shard(rank, 2) for rank in range(2)]
    for rank, shard in enumerate(shards):
        looks = 0
        while not pathlib.Path(f"shard-{rank}.ready").exists():
            if shard.poll() is not None:
                raise SystemExit(f"shard {rank} ended with {shard.returncode}")
            if looks % 100 == 0:
                print(f"Waiting for shard to be ready... rank={rank}", flush=True)
            looks += 1
            time.sleep(0.1)
    for shard in shards:
        shard.wait()


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# culprits = [[1], [0, 1], [0]]
# culprits_by_stacks = [[]]
# steps = ["import_torch", "process_group", "script"]
# after = ["torch imported", ""]
# own_code = true
# calls = ['init_process_group', 'rendezvous', 'TCPStore', 'TCPStoreBackend', '_create_c10d_store']
# causes = ["different-master", "nobody-serves-the-store", "store-not-reached"]
# says = ['127\.0\.0\.1|MASTER_PORT|store']
# [files]
# "shard.py" = '''
# """One shard of the model."""
# import datetime
# import os
# import pathlib
# import torch
# import torch.distributed as dist
#
# torch.set_num_threads(1)
# dist.init_process_group("gloo", timeout=datetime.timedelta(hours=2))
# dist.barrier()
# pathlib.Path(f"shard-{os.environ['RANK']}.ready").touch()
# '''
# ///
