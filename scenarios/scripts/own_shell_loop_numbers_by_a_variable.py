"""A shell starts four programs in a loop, each with its number in a variable that no launcher uses;
number 2 waits for an answer of a helper that it has started, before it joins the group.
"""

import os
import subprocess
import sys

import torch
import torch.distributed as dist


class Vocabulary:
    def __init__(self, part: int) -> None:
        self.part = part
        self.size = 0

    def load(self) -> "Vocabulary":
        helper = subprocess.Popen(
            [sys.executable, "-c", "import time; time.sleep(100000)"], stdout=subprocess.PIPE
        )
        assert helper.stdout is not None
        self.size = len(helper.stdout.readline())
        return self


def main() -> None:
    part, parts = int(os.environ["PART"]), int(os.environ["PARTS"])
    if part == 2:
        Vocabulary(part).load()
    dist.init_process_group(
        "gloo", init_method="tcp://127.0.0.1:29873", rank=part, world_size=parts
    )
    dist.all_reduce(torch.ones(4))


if __name__ == "__main__":
    main()

# /// case
# command = "bash start.sh"
# culprits = [[2]]
# waiting = [0, 1, 3]
# steps = ["script"]
# after = ["torch imported"]
# own_code = true
# calls = ["readline"]
# causes = ["child-process-stuck", "child-program", "own-code-sleeps"]
# [files]
# "start.sh" = '''
# for part in 0 1 2 3; do
#     PART=$part PARTS=4 python -u train.py &
# done
# wait
# '''
# ///
