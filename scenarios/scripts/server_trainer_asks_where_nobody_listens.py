"""A trainer's rank 0 asks TRL's server whether it is up, where nobody listens: the server was
started at another port; its rank 1 is at the barrier that follows.

TRL is a stand-in, written from its source. Nothing proves that it hangs: it is asked for an hour.
"""

import sys

import torch.distributed as dist
from trl.generation.vllm_client import VLLMClient


def main(port):
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        VLLMClient(f"http://127.0.0.1:{port}", connection_timeout=3600)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])

# /// case
# command = "torchrun --standalone --nproc_per_node=2 train.py $PORT"
# packages = ["trl", "vllm"]
# needs = ["setproctitle"]
# culprits = [[0]]
# waiting = [1]
# steps = ["process_group", "server_up"]
# after = ["Process group ready"]
# own_code = true
# calls = ['check_server']
# causes = ["server-not-up"]
# says = ['http://127\.0\.0\.1:\d+/health, at which nobody listens']
# ///
