"""A trainer of two ranks writes its weights into a folder and waits until its rollout server has
taken them; the server looks for step-0001, and the trainer has written step-1.

Rank 1 is at the barrier. Both who look for a file sleep in between.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist


class RolloutServer:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process = subprocess.Popen([sys.executable, "rollout.py", str(folder)])

    def push_weights(self, model: torch.nn.Module, step: int) -> None:
        torch.save(model.state_dict(), self.folder / f"step-{step}.pt")
        while not (self.folder / f"step-{step}.taken").exists():
            time.sleep(0.25)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    model = torch.nn.Linear(4, 4)
    server = None
    if dist.get_rank() == 0:
        args.folder.mkdir(exist_ok=True)
        server = RolloutServer(args.folder)
    for step in range(1, 4):
        if server is not None:
            server.push_weights(model, step)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=2 train.py --folder weights"
# needs = ["setproctitle"]
# culprits = [[0], [-1]]
# waiting = [1]
# steps = ["process_group", "script", "arguments"]
# after = ["Process group ready", "", "Args parsed"]
# own_code = true
# calls = ['sleep', 'push_weights', 'take_weights']
# causes = [
#   "polling-loop", "own-code-sleeps",
#   "server-process-stuck", "child-process-stuck", "deadlock",
# ]
# says = ['step-1\.taken|push_weights|rollout']
# [files]
# "rollout.py" = '''
# """Takes each version of the weights and plays by it."""
# import sys
# import time
# from pathlib import Path
#
# import setproctitle
#
#
# def take_weights(folder, step):
#     path = folder / f"step-{step:04d}.pt"
#     while not path.exists():
#         time.sleep(0.25)
#     path.with_suffix(".taken").touch()
#
#
# setproctitle.setproctitle("rollout::server")
# for number in range(1, 4):
#     take_weights(Path(sys.argv[1]), number)
# '''
# ///
