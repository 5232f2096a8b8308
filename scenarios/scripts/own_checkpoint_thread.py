"""Rank 0 joins the thread that writes its checkpoint, to a FIFO that nobody reads.

What should upload the file was to be started by somebody else; the others are in a barrier of
gloo.
"""

import argparse
import os
import threading

import torch
import torch.distributed as dist


class Saver:
    def __init__(self, target: str) -> None:
        self.target = target
        self.thread: threading.Thread | None = None

    def begin(self, state: dict[str, torch.Tensor]) -> None:
        self.thread = threading.Thread(target=self._write, args=(state,), name="saver")
        self.thread.start()

    def _write(self, state: dict[str, torch.Tensor]) -> None:
        with open(self.target, "wb") as file:
            torch.save(state, file)

    def finish(self) -> None:
        if self.thread is not None:
            self.thread.join()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", default="upload")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    saver = Saver(args.target)
    if int(os.environ["RANK"]) == 0:
        os.mkfifo(args.target)
        saver.begin({"weight": torch.zeros(16, 16)})
    saver.finish()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py"
# culprits = [[0]]
# waiting = [1, 2]
# steps = ["process_group", "ddp_wrap", "first_collective"]
# after = ["Process group ready", ""]
# own_code = true
# calls = ['join', 'finish', 'open', '_write']
# causes = ["pipe-no-writer", "unknown"]
# ///
