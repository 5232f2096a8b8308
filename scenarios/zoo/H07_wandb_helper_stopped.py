"""W&B's helper process, wandb-core, is alive and does nothing: rank 0 waits for its answer.

wandb.init hands everything to a child and waits for it. A child that is stopped, swapped out or
stuck itself looks from the rank like a server that is silent; here nothing is wrong with the
network (wandb/wandb#4224: "timed out waiting for wandb service to start").

Here it is stopped as soon as it exists.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from typing import Any

from hangbisect.zoo.case import Case, Truth


def children() -> list[int]:
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        mine = file.read().split()
    found = []
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError), open(f"/proc/self/task/{task}/children") as file:
            mine += file.read().split()
    for pid in set(mine):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/comm") as file:
            if file.read().startswith("wandb-core"):
                found.append(int(pid))
    return found


def stop_it() -> None:
    while True:
        for pid in children():
            os.kill(pid, signal.SIGSTOP)
            return
        time.sleep(0.005)


def wandb_logger(given: Any) -> Any:
    from hangbisect.zoo.in_rank import run_usual_step

    threading.Thread(target=stop_it, daemon=True).start()
    return run_usual_step(given)


CASE = Case(
    id="H07",
    title="wandb-core is stopped",
    cluster="C3",
    reports=("wandb/wandb#4224", "wandb/wandb#5214"),
    culprit_goes="first",
    truth=Truth(
        outcome="hang",
        culprit=(0,),
        waiting=(1,),
        checkpoint="wandb_logger",
        component=("wandb",),
        waits_for=("process",),
        detail="wandb-core",
        cause=("stopped",),
        avoids=("wandb=off",),
    ),
    uses={"wandb_logger": "wandb_logger"},
)
