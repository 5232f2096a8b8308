"""What differs between any two starts, and says nothing."""

from __future__ import annotations

import re

# Of five starts of the startup pipeline, on two cores with the work of ten, 7 of 120 pairs of steps
# are further apart than this; than 0.5 s and a fifth, 34 (benchmarks/compare_noise.py).
SECONDS = 1.0
SHARE = 0.5  # of the longer one

# Other names of the job, or of this start of it; what each rank is, is a line of its own.
_OF_A_START = re.compile(
    r"HANGBISECT_.*|TORCHELASTIC_(?:RUN_ID|ERROR_FILE)|WANDB_(?:RUN_ID|SERVICE|SWEEP_ID)"
    r"|(?:LOCAL_|GROUP_|ROLE_|NODE_|CROSS_)?RANK|(?:LOCAL_|ROLE_|GROUP_)?WORLD_SIZE"
    r"|OMPI_COMM_WORLD_.*|PMI_(?:RANK|SIZE|FD)|PMIX_.*"
    r"|SLURM_(?:JOB_?ID|STEP_?ID|STEPID|PROCID|LOCALID|NODEID|TASK_PID|GTIDS|NTASKS|NPROCS"
    r"|STEP_NUM_TASKS|STEP_LAUNCHER_PORT|SRUN_COMM_PORT|SRUN_COMM_HOST|LAUNCH_NODE_IPADDR"
    r"|JOB_(?:START|END)_TIME)"
)
# Names that are drawn by lot: UUIDs, and folders of one start.
_DRAWN = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
    r"|(?<=torchelastic_)\w+|(?<=/tmp/)tmp[\w]{8}"
)
_OURS = re.compile(r"/hangbisect-[0-9a-f]{12}\.tmp(?:/|$)")  # the folder that we gave a start
_EPHEMERAL = 32768  # the first port that the kernel gives out by itself (ip(7))


def is_of_a_start(variable: str) -> bool:
    """Return whether a variable has another value in every start, or is a rank's own number."""
    return _OF_A_START.fullmatch(variable) is not None


def same_value(variable: str, one: str, other: str) -> bool:
    """Return whether two values of a variable are the same, but for what is drawn by lot."""
    if one == other:
        return True
    if variable == "MASTER_PORT" and _is_drawn(one) and _is_drawn(other):
        return True
    if _OURS.search(one) or _OURS.search(other):
        return True
    return _DRAWN.sub("*", one) == _DRAWN.sub("*", other)


def same_time(one: float, other: float) -> bool:
    """Return whether two times in seconds are as near to each other as those of any two starts."""
    return abs(one - other) <= max(SECONDS, SHARE * max(one, other))


def _is_drawn(port: str) -> bool:
    return port.isdecimal() and int(port) >= _EPHEMERAL
