"""A script that runs torch's elastic agent inside itself (torch.distributed.launcher.api's
elastic_launch) starts the ranks, and is none of them.
"""

from __future__ import annotations

import sys
import time

from .test_monitor_never_harms import enough, watched
from .verdicts import shown
from .whole_jobs import Jobs

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


def test_a_script_that_runs_an_agent_waits_for_its_ranks_and_is_not_called_silent(
    jobs_here: Jobs,
) -> None:
    """It sleeps and looks, for as long as the ranks live: each of them is watched by itself."""
    folder = jobs_here.folder()
    package = folder / "libraries" / "torch" / "distributed" / "elastic" / "agent" / "server"
    package.mkdir(parents=True)
    for part in (package, *list(package.parents)[:4]):
        (part / "__init__.py").touch()
    (package / "api.py").write_text(AGENT, encoding="utf-8")
    (folder / "train.py").write_text(SCRIPT, encoding="utf-8")
    job = watched(jobs_here, folder, (sys.executable, "train.py"), "--stall", "3")
    job.until("began")
    time.sleep(12.0)
    ended = enough(job)
    assert ended.status == 0, shown(ended)
    assert "done" in ended.out, shown(ended)
    assert "watches" in ended.err, shown(ended)
    assert "SILENT" not in ended.err, shown(ended)
    assert "stands still" not in ended.err, shown(ended)
