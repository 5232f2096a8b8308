"""A saver meets all ranks in a barrier when it is destroyed; rank 2 keeps its own in an exception.

Rank 2 could not write its preview and keeps the error for the report at the end, and with its
traceback the frame that made the saver. It goes on and gathers the times of all.
"""

import pathlib
import time

import torch
import torch.distributed as dist


class Saver:
    """Writes the part of its rank; when it goes away all ranks have written theirs."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def write(self, name: str, part: torch.Tensor) -> None:
        torch.save(part, self.folder / name)

    def __del__(self) -> None:
        dist.barrier()


class Run:
    def __init__(self) -> None:
        self.rank = dist.get_rank()
        self.errors: list[Exception] = []

    def preview(self, saver: Saver, part: torch.Tensor) -> None:
        folder = saver.folder / ("previews" if self.rank == 2 else "")
        (folder / f"preview-{self.rank}.txt").write_text(str(part[0]))

    def save(self, step: int) -> None:
        part = torch.randn(64, 8)
        saver = Saver(pathlib.Path("checkpoints") / str(step))
        saver.write(f"part-{self.rank}.pt", part)
        try:
            self.preview(saver, part)
        except OSError as error:
            self.errors.append(error)


def main() -> None:
    dist.init_process_group("gloo")
    run = Run()
    for step in range(3):
        began = time.monotonic()
        run.save(step)
        times: list[float] = [0.0] * dist.get_world_size()
        dist.all_gather_object(times, time.monotonic() - began)
        if run.rank == 0:
            print(f"step {step}: saved in {max(times):.3f} s", flush=True)
    print(f"rank {run.rank}: {len(run.errors)} errors", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py"
# culprits = [[2]]
# waiting = [0, 1, 3]
# steps = [
#   "process_group", "training", "ddp_wrap", "first_collective", "first_barrier", "barrier",
#   "first_all_gather_object",
# ]
# after = ["Process group ready", "First barrier done", "First all_gather_object done", ""]
# own_code = true
# calls = ['all_gather_object', 'distributed\.\w+', 'Saver\.__del__']
# causes = ["rank-conditional-collective", "collective-mismatch"]
# ///
