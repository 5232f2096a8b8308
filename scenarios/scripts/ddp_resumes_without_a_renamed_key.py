"""dcp.load: rank 1 runs an older model file whose head has another name, and starts from scratch.

Its KeyError comes while it makes the dictionary to be loaded, and is swallowed by what is meant for
a first start without a checkpoint. The others are in dcp.load, rank 1 in its first backward.
"""

import logging
import os

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.nn.parallel import DistributedDataParallel

log = logging.getLogger("resume")
HEADS = {"v2": "head", "v1": "classifier"}


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Linear(16, 32)
        self.head = torch.nn.Linear(32, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(torch.relu(self.body(x)))
        return out


def wanted(model: torch.nn.Module, version: str) -> dict[str, torch.Tensor]:
    """Return what is to be filled from the checkpoint."""
    own = model.state_dict()
    names = [f"{part}.{kind}" for part in ("body", HEADS[version]) for kind in ("weight", "bias")]
    return {name: own[name] for name in names}


def resume(model: torch.nn.Module, path: str, version: str) -> int:
    try:
        state = wanted(model, version)
        dcp.load(state, checkpoint_id=path)
    except (FileNotFoundError, KeyError) as error:
        log.warning("no checkpoint (%s), starting from scratch", error)
        return 0
    model.load_state_dict(state)
    return 2


def main() -> None:
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    version = os.environ.get("MODEL_VERSION", "v1" if rank == 1 else "v2")
    torch.manual_seed(0)
    net = Net()
    dcp.save(net.state_dict(), checkpoint_id="checkpoints/last")
    model = DistributedDataParallel(net)
    first = resume(net, "checkpoints/last", version)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(first, 6):
        loss = torch.nn.functional.cross_entropy(
            model(torch.randn(8, 16)), torch.randint(0, 4, (8,))
        )
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py"
# culprits = [[1]]
# culprits_by_stacks = [[0, 1, 2]]
# waiting = [0, 2]
# steps = [
#   "training", "ddp_wrap", "wrap", "first_backward", "first_scatter_object_list", "checkpoint",
#   "first_gather_object", "first_broadcast_object_list", "first_all_gather_object", "optimizer",
# ]
# after = ["DDP ready", "First gather_object done", "First scatter_object_list done", ""]
# own_code = true
# calls = ['backward', 'distributed\.\w+', 'resume']
# causes = ["rank-conditional-collective", "collective-mismatch", "swallowed-exception"]
# limit = 300
# ///
