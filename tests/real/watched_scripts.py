"""Scripts of users' own, started below the watch, and what their ranks told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jobs
import script_jobs
from hangbisect.rank.watched.command_environment import variables
from script_shelf import Script, Truth


def ended(script: Script, folder: Path, watched: bool = True, **more: str) -> jobs.Ended:
    """Return how a script ended; its run folder is `folder`."""
    environment = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", **more}
    if watched:
        environment |= {**variables({"run-dir": str(folder)}, jobs.clean_environ()), **more}
    with script_jobs.started(script, environment=environment) as running:
        assert running.wait_until_gone(script.limit) is not None, running.said()
        return running.end(1)


def written(source: str, folder: Path, **files: str) -> Script:
    """Return a script with that source, and others beside it by name."""
    file = folder / "written.py"
    file.write_text(source, encoding="utf-8")
    others = {f"{name}.py": text for name, text in files.items()}
    return Script(file, "", ("python", "train.py"), Truth("ok"), files=others)


def told(folder: Path, kind: str) -> list[dict[str, Any]]:
    """Return the events of a kind that ranks told."""
    lines = (folder / "events.jsonl").read_text(encoding="utf-8").splitlines()
    return [event for event in map(json.loads, lines) if event["t"] == kind]
