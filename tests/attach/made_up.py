"""Processes of jobs, made up: short spellings of what /proc says."""

from __future__ import annotations

from typing import Any

from hangbisect.attach.processes import Process

PYTHON = "/venv/bin/python"
TORCHRUN = (PYTHON, "/venv/bin/torchrun", "--nproc_per_node=2", "train.py")
SCRIPT = (PYTHON, "-u", "train.py")


def process(pid: int, ppid: int = 1, *words: str, **more: Any) -> Process:
    """A process; it runs Python unless its first word is another program."""
    made: dict[str, Any] = {
        **{"pid": pid, "ppid": ppid, "uid": 0, "started": pid, "name": "python", "state": "S"},
        **{"words": words or SCRIPT, "environ": {}},
    }
    made["python"] = "python" in made["words"][0]
    return Process(**(made | more))


def table(*processes: Process) -> dict[int, Process]:
    """All of them by pid, below init."""
    init = process(1, 0, "/sbin/init", name="init")
    return {one.pid: one for one in (init, *processes)}


def torchrun(
    first: int = 100, ranks: int = 2, run: str = "abc", /, **environ: str
) -> list[Process]:
    """Torchrun and its ranks, whose pids follow its own."""
    return [
        process(first, 1, *TORCHRUN),
        *(
            process(first + 1 + n, first, environ=of_torchrun(n, ranks, run) | environ)
            for n in range(ranks)
        ),
    ]


def of_torchrun(rank: int, world: int = 2, run: str = "abc") -> dict[str, str]:
    """What torchrun sets for a rank."""
    return {
        **{"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world)},
        **{"LOCAL_WORLD_SIZE": str(world), "GROUP_WORLD_SIZE": "1", "GROUP_RANK": "0"},
        **{"MASTER_ADDR": "localhost", "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": run},
    }
