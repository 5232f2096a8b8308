"""A shell starts three programs in a loop, each with its number as an argument and without any
variable; number 1 waits for an index that nobody makes, before it joins the group in which the
others wait for it.
"""

import argparse
import os
import time

import torch
import torch.distributed as dist


def wait_for_index(path: str) -> None:
    while not os.path.exists(path):
        time.sleep(0.5)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpu", type=int)
    parser.add_argument("--count", type=int)
    parser.add_argument("--port")
    given = parser.parse_args()
    if given.gpu == 1:
        wait_for_index("index.done")
    url = f"tcp://127.0.0.1:{given.port}"
    dist.init_process_group("gloo", init_method=url, rank=given.gpu, world_size=given.count)
    total = torch.ones(4)
    for _ in range(5):
        dist.all_reduce(total)


if __name__ == "__main__":
    main()

# /// case
# command = "bash start.sh"
# culprits = [[1]]
# waiting = [0, 2]
# steps = ["script"]
# after = ["Args parsed"]
# own_code = true
# calls = ["time.sleep"]
# causes = ["polling-loop"]
# [files]
# "start.sh" = '''
# for gpu in 0 1 2; do
#     python -u train.py --gpu $gpu --count 3 --port 29871 &
# done
# wait
# '''
# ///
