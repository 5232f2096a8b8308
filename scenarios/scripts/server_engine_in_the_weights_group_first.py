"""An engine beside the trainer stands in the group for the weights, as its rank 1; the trainer's
rank 0 asks a feature service that never answers and joins that group only afterwards.

Two groups have a rank 1: that of the trainer (both of whose ranks are there) and that of the
weights, where the engine is rank 1 of 2. The trainer's rank 1 is at a barrier. Only rank 0 stands
still; the engine waits for it, and no rank is there twice.
"""

import os
import subprocess
import sys
import urllib.request

import torch
import torch.distributed as dist
from torch.distributed import TCPStore


def features() -> bytes:
    with urllib.request.urlopen(os.environ["SERVICE"] + "/features") as answer:
        return answer.read()


def weights_group(port: int) -> TCPStore:
    return TCPStore("127.0.0.1", port, 2, True, wait_for_workers=True)


def main() -> None:
    port = int(sys.argv[1])
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        own = {k: v for k, v in os.environ.items() if not k.startswith(("RANK", "WORLD", "LOCAL_"))}
        engine = subprocess.Popen([sys.executable, "engine.py", str(port)], env=own)
        features()
        weights_group(port)
        engine.wait()
    dist.barrier()
    dist.all_reduce(torch.ones(1))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=2 train.py $PORT"
# world = "silent_service"
# culprits = [[0]]
# waiting = [1]
# steps = ["process_group", "barrier"]
# after = ["Process group ready"]
# own_code = true
# calls = ['urlopen', 'features', 'recv', 'readinto']
# causes = ["endpoint-silent"]
# [files]
# "engine.py" = '''
# """An engine: it serves requests once the trainer has given it the weights."""
# import sys
# from datetime import timedelta
#
# import torch
# import torch.distributed as dist
#
#
# def update_weights(port):
#     dist.init_process_group(
#         "gloo",
#         init_method=f"tcp://127.0.0.1:{port}",
#         rank=1,
#         world_size=2,
#         timeout=timedelta(hours=1),
#     )
#     dist.broadcast(torch.zeros(1), 0)
#
#
# update_weights(int(sys.argv[1]))
# '''
# ///
