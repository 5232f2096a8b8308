"""A backend that does not exist, on each rank of torchrun."""

import torch.distributed as dist

dist.init_process_group("no-such-backend")

# /// case
# command = "torchrun --standalone --nproc_per_node=2 train.py"
# outcome = "ok"
# status = 1
# ///
