"""Work.get_future().then(): rank 1 of three checks each sum in a callback, and sums once more
there, in the thread in which its futures come true.

The others know of no second sum.
"""

import torch
import torch.distributed as dist


class Averager:
    """Sums gradients and hands back futures."""

    def __init__(self, checks: bool) -> None:
        self.checks = checks
        self.drift: list[float] = []

    def start(self, gradient: torch.Tensor) -> torch.futures.Future:
        future = dist.all_reduce(gradient, async_op=True).get_future()
        return future.then(self._arrived)

    def _arrived(self, future: torch.futures.Future) -> torch.Tensor:
        (total,) = future.value()
        if self.checks and len(self.drift) == 3:
            norm = total.norm()
            dist.all_reduce(norm)
        self.drift.append(float(total.abs().max()))
        return total / dist.get_world_size()


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    averager = Averager(checks=rank == 1)
    layers = [torch.randn(24, 24) for _ in range(2)]
    for step in range(10):
        futures = [averager.start(torch.randn_like(one)) for one in layers]
        for layer, mean in zip(layers, torch.futures.wait_all(futures), strict=True):
            layer -= 0.1 * mean
        print(f"rank {rank} step {step}", flush=True)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py"
# culprits = [[1]]
# waiting = [0, 2]
# steps = [
#   "training", "steady", "process_group", "first_all_reduce", "all_reduce", "first_barrier",
#   "barrier", "first_collective",
# ]
# after = ["First all_reduce done", "Process group ready", "Barrier passed", "First barrier done"]
# own_code = true
# calls = ['_arrived', 'all_reduce', 'wait_all', 'main']
# causes = ["rank-conditional-collective", "collective-mismatch", "collectives-in-two-threads"]
# ///
