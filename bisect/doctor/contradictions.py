"""Variables of the environment that contradict one another, the launcher, or the devices."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..base.launcher_env import INTERACTIVE, number
from .devices import Devices, read_devices
from .examination import Check, CheckFamily, Finding, Setting, ok, problem, read_nothing, warning

_OF_RANKS = ("RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")


def launchers(setting: Setting, facts: None) -> Iterator[Finding]:
    """Judge what variables say of the launcher that started this process."""
    said = 0
    for sentence in setting.place.contradictions:
        said += 1
        if "SLURM_STEP_ID" in sentence:  # right for what starts the job, wrong for the job itself
            yield warning(sentence, "srun before the job's command: srun hangbisect doctor too")
        else:
            yield problem(sentence, "unset what was exported by hand or in ~/.bashrc")
    for finding in _without_launcher(setting):
        said += 1
        yield finding
    for name in _OF_RANKS:
        value = setting.environ.get(name)
        if value is not None and number(setting.environ, name) is None:
            said += 1
            yield problem(f"{name}={value} is no number from 0", f"unset {name}")
    if not said:
        who = setting.place.launcher
        yield ok(f"{who} started rank {setting.place.rank}" if who else "no launcher, no rank")


def _without_launcher(setting: Setting) -> Iterator[Finding]:
    """Yield what variables of ranks do that no launcher set (LightningEnvironment: with LOCAL_RANK
    it starts no rank, with NODE_RANK it counts on the nodes before).
    """
    environ = setting.environ
    if setting.is_launched:
        return
    values = {name: number(environ, name) for name in _OF_RANKS}
    found = {name: value for name, value in values.items() if value is not None}
    by_hand = {"RANK", "WORLD_SIZE"} <= found.keys() and bool(environ.get("MASTER_ADDR"))
    names = [name for name in ("NODE_RANK", "GROUP_RANK") if found.get(name)]
    names += [name for name in ("LOCAL_RANK",) if name in found and not by_hand]
    world = found.get("WORLD_SIZE", 1)
    if names:
        words = ", ".join(f"{name}={found[name]}" for name in names)
        does = "Lightning starts no other rank" if "LOCAL_RANK" in names else "Lightning waits for "
        does += "" if "LOCAL_RANK" in names else "the ranks of the nodes before this one"
        yield problem(
            f"{words} without torchrun, srun or mpirun above: {does}", f"unset {' '.join(names)}"
        )
    elif world > 1 and not (by_hand and "KUBERNETES_SERVICE_HOST" in environ):
        yield warning(
            f"WORLD_SIZE={world} without a launcher above: nobody here starts the other ranks",
            "unset WORLD_SIZE, unless you start each rank by hand",
        )


def devices(setting: Setting, facts: Devices) -> Iterator[Finding]:
    """Judge the number of ranks, and of Slurm's tasks, against the devices."""
    if facts.missing and not facts.count:
        yield ok("no GPUs to compare with")
        return
    seen = facts.visible(setting.environ)
    place, environ = setting.place, setting.environ
    ranks = place.local_world_size if place.launcher else 1
    each = number(environ, "SLURM_GPUS_PER_TASK")
    bound = each is not None and len(seen) <= each
    tasks = number(environ, "SLURM_NTASKS") or 1
    said = f"{ranks} rank(s) on this node, {len(seen)} of {facts.count} GPU(s) visible"
    hidden = environ.get("CUDA_VISIBLE_DEVICES")
    if (wrong := facts.no_such(environ)) is not None:
        yield problem(
            f"CUDA_VISIBLE_DEVICES={hidden}: there is no GPU {wrong}, and CUDA leaves out all from "
            "there on",
            f"nvidia-smi -L lists {facts.count}",
        )
    elif hidden is not None and not seen:
        said = f"CUDA_VISIBLE_DEVICES={hidden!r} hides all {facts.count} GPU(s)"
        yield warning(said, "unset CUDA_VISIBLE_DEVICES")
    elif ranks > len(seen) and not bound:
        yield problem(
            f"{said}: two ranks on one GPU wait for each other in NCCL",
            f"--nproc_per_node={len(seen)}, or more GPUs",
        )
    elif place.launcher is None and "SLURM_JOB_ID" in environ and 1 < tasks < facts.count:
        yield warning(
            f"SLURM_NTASKS={tasks}, and this node has {facts.count} GPU(s)",
            "Lightning wants as many tasks a node as devices: --ntasks-per-node",
        )
    elif place.launcher == "srun" and ranks == 1 < len(seen):
        yield warning(
            f"one task on this node and {len(seen)} GPU(s): Lightning would wait for tasks that "
            "nobody starts",
            f"--ntasks-per-node={len(seen)}; for torchrun below it, one task is right",
        )
    else:
        yield ok(said)


def slurm(setting: Setting, facts: None) -> Iterator[Finding]:
    """Judge what Slurm says of tasks and nodes."""
    environ = setting.environ
    tasks, nodes = number(environ, "SLURM_NTASKS"), number(environ, "SLURM_NNODES")
    if "SLURM_JOB_ID" not in environ:
        yield ok("not in a job of Slurm's")
        return
    each = re.match(r"\d{1,6}", environ.get("SLURM_NTASKS_PER_NODE", ""))
    asked = int(each[0]) if each else None
    if tasks is not None and nodes and asked and tasks != asked * nodes:
        yield warning(
            f"SLURM_NTASKS={tasks}, but {nodes} node(s) of SLURM_NTASKS_PER_NODE={asked}",
            "give --ntasks-per-node alone: Lightning compares it with its devices",
        )
    elif (
        setting.place.launcher is None
        and (tasks or 1) > 1
        and environ.get("SLURM_JOB_NAME") not in INTERACTIVE
    ):
        yield warning(
            f"SLURM_NTASKS={tasks}, and srun has not started this process: Lightning would take "
            "itself for task 0 and wait for the others",
            "srun python train.py; in a shell of salloc --job-name=interactive",
        )
    else:
        yield ok(f"{tasks or 1} task(s) on {nodes or 1} node(s)")


FAMILY = CheckFamily(
    "What variables say",
    (
        Check(
            id="launcher-variables",
            title="RANK, NODE_RANK and their like come from the launcher that started this",
            why="A library that finds them believes that somebody else starts the other ranks, and "
            "waits for these.",
            read=read_nothing,
            judge=launchers,
        ),
        Check(
            id="ranks-and-devices",
            title="there are as many ranks on the node as devices",
            why="Two ranks on one GPU wait for each other in NCCL; a rank too few is waited for.",
            read=read_devices,
            judge=devices,
        ),
        Check(
            id="slurm-tasks",
            title="Slurm's numbers of tasks and nodes agree",
            why="Lightning counts on SLURM_NTASKS ranks, started by srun.",
            read=read_nothing,
            judge=slurm,
        ),
    ),
)
