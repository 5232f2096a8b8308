"""Rank 2 of four forks to write a checkpoint aside; its copy meets an error, and trains on.

The copy was to end by os._exit; its error is caught by the loop. It is in the next step's reduction
for ever, as the threads of gloo are not in it; at the end rank 2 waits for the copy, and the others
for rank 2 in the last barrier.
"""

import os

import torch
import torch.distributed as dist


class Snapshots:
    """Writes the state in a forked copy, so that the training need not wait for the disk."""

    def __init__(self) -> None:
        self.copies: list[int] = []

    def write(self, state: dict[str, object], folder: str) -> None:
        pid = os.fork()
        if pid:
            self.copies.append(pid)
            return
        torch.save(state, f"{folder}/state.pt")
        os._exit(0)

    def wait(self) -> None:
        for pid in self.copies:
            os.waitpid(pid, 0)


def step_once(model: torch.nn.Module, weights: torch.Tensor) -> None:
    loss = model(torch.randn(4, 8)).pow(2).mean().detach()
    dist.all_reduce(loss)
    weights += loss


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model, weights, snapshots = torch.nn.Linear(8, 8), torch.zeros(1), Snapshots()
    for step in range(8):
        try:
            step_once(model, weights)
            if rank == 2 and step == 3:
                snapshots.write(model.state_dict(), "snapshots")  # a folder that is not there
        except (OSError, RuntimeError) as error:
            print(f"rank {rank} step {step}: {error}", flush=True)
    snapshots.wait()
    dist.barrier()
    print(f"rank {rank}: {weights.item():.2f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py"
# culprits = [[2]]
# waiting = [0, 1, 3]
# steps = [
#   "process_group", "training", "first_all_reduce",
#   "all_reduce", "barrier", "first_barrier",
# ]
# after = ["First all_reduce done", "Process group ready", ""]
# own_code = true
# calls = ['waitpid', 'wait', 'all_reduce', 'Snapshots']
# causes = [
#   "thread-lost-by-fork", "child-process-stuck", "collective-in-a-worker", "lock-after-fork",
# ]
# ///
