"""A script that runs torch's elastic agent inside itself (torch.distributed.launcher.api's
elastic_launch) starts the ranks, and is none of them.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from .test_monitor_never_harms import enough, watched
from .verdicts import shown
from .whole_jobs import Jobs

FORKS = """
import os
import torch.distributed as dist

class SimpleElasticAgent:
    def run(self, role="default"):
        pids = []
        for rank in range(2):
            pids.append(os.fork())
            if not pids[-1]:
                os.environ.update(RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank))
                dist.init_process_group("gloo")
                os._exit(0)
        for pid in pids:
            os.waitpid(pid, 0)
"""
GROUPS = """
def init_process_group(backend):
    print("joined", flush=True)
"""
AGENT = """
import os, time

class SimpleElasticAgent:
    def run(self, role="default"):
        print("began", flush=True)
        while not os.path.exists("enough"):
            time.sleep(0.1)
"""
SCRIPT = """
import torch
from torch.distributed.elastic.agent.server.api import SimpleElasticAgent

SimpleElasticAgent().run()
print("done", flush=True)
"""


def _folder_with_agent(jobs_here: Jobs, agent: str) -> Path:
    """Return the folder of a job with a torch of its own, of which there is the agent."""
    folder = jobs_here.folder()
    package = folder / "libraries" / "torch" / "distributed" / "elastic" / "agent" / "server"
    package.mkdir(parents=True)
    for part in (package, *list(package.parents)[:4]):
        (part / "__init__.py").touch()
    (package / "api.py").write_text(agent, encoding="utf-8")
    distributed = folder / "libraries" / "torch" / "distributed"
    (distributed / "distributed_c10d.py").write_text(GROUPS, encoding="utf-8")
    (distributed / "__init__.py").write_text("from .distributed_c10d import *\n", encoding="utf-8")
    (folder / "train.py").write_text(SCRIPT, encoding="utf-8")
    return folder


def test_a_script_that_runs_an_agent_waits_for_its_ranks_and_is_not_called_silent(
    jobs_here: Jobs,
) -> None:
    """It sleeps and looks, for as long as the ranks live: each of them is watched by itself."""
    folder = _folder_with_agent(jobs_here, AGENT)
    job = watched(jobs_here, folder, (sys.executable, "train.py"), "--stall", "3")
    job.until("began")
    time.sleep(12.0)
    ended = enough(job)
    assert ended.status == 0, shown(ended)
    assert "done" in ended.out, shown(ended)
    assert "watches" in ended.err, shown(ended)
    assert "SILENT" not in ended.err, shown(ended)
    assert "stands still" not in ended.err, shown(ended)


def test_ranks_that_an_agent_forks_in_a_script_tell_their_steps(jobs_here: Jobs) -> None:
    """As notebook_launcher of accelerate starts them: they are copies of the script, which itself
    is quiet from then on.
    """
    folder = _folder_with_agent(jobs_here, FORKS)
    ended = watched(jobs_here, folder, (sys.executable, "train.py"), "--stall", "3").end(60.0)
    assert ended.status == 0, shown(ended)
    for rank in range(2):
        assert f"[R{rank}/2]" in ended.err, shown(ended)
    assert ended.err.count("CHECKPOINT process_group: Process group ready") == 2, shown(ended)
