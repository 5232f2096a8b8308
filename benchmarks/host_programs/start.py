"""Starts the ranks of a host, as a script of one's own does, and waits for them.

FAULT_KIND=missing: that one rank is not among them.
"""

import os
import subprocess
import sys

A_NODE, NODE = int(os.environ["LOCAL_WORLD_SIZE"]), int(os.environ["GROUP_RANK"])


def start(local):
    rank = {"RANK": str(NODE * A_NODE + local), "LOCAL_RANK": str(local)}
    return subprocess.Popen([sys.executable, *sys.argv[1:]], env={**os.environ, **rank})


def is_left_out(local):
    left_out = int(os.environ["FAULT_RANK"]) if os.environ["FAULT_KIND"] == "missing" else -1
    return left_out == NODE * A_NODE + local


def main():
    ranks = [start(local) for local in range(A_NODE) if not is_left_out(local)]
    sys.exit(max(abs(rank.wait()) for rank in ranks))


main()
