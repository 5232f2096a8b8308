"""Every rank decides by its own clock whether it is time to save; that of rank 1 is first.

Its saver gathers the states of all in a helper class; the others are in the next step.
"""

import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class TimedSaver:
    """Saves once so many seconds have passed since it was last done."""

    def __init__(self, every: float) -> None:
        self.every, self.last, self.saved = every, time.monotonic(), 0

    def is_due(self) -> bool:
        return time.monotonic() - self.last > self.every

    def save_if_due(self, optimizer: torch.optim.Optimizer) -> None:
        if self.is_due():
            self._save(optimizer.state_dict())
            self.last = time.monotonic()

    def _save(self, state: dict[str, object]) -> None:
        states: list[object] = [None] * dist.get_world_size()
        dist.all_gather_object(states, state)
        self.saved += 1
        if dist.get_rank() == 0:
            torch.save(states, "states.pt")


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(torch.nn.Linear(64, 64))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    if rank == 1:
        saver = TimedSaver(every=4)  # it counts from before its caches were filled
        time.sleep(1.5)
    else:
        time.sleep(1.5)
        saver = TimedSaver(every=4)
    for step in range(60):
        model(torch.randn(8, 64)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.2)
        saver.save_if_due(optimizer)
        if rank == 0 and step % 5 == 0:
            print(f"step {step}, saved {saver.saved}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py"
# culprits = [[1]]
# culprits_by_stacks = [[]]
# waiting = [0, 2, 3]
# steps = [
#   "training", "steady", "first_step", "first_backward", "all_gather_object",
#   "first_all_gather_object", "ddp_wrap",
# ]
# after = ["First step done", "First backward done", ""]
# own_code = true
# calls = ['distributed\.\w+', '_save', 'backward', 'save_if_due']
# causes = ["rank-conditional-collective", "collective-mismatch", "gloo-mismatch"]
# ///
