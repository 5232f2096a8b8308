"""A job whose environment, arguments, URL, locals, logs and file names hold secrets hangs; nothing
that leaves holds one.
"""

from __future__ import annotations

import json
import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path

import jobs
import planted
from hangbisect.commands.results import bundle

from .verdicts import shown
from .whole_jobs import Jobs

# It shows its secrets wherever a job does: the last line that it prints is one, the URL that it
# waits for another, and its logs lie in the run folder.
JOB = """
import json, os, pathlib, socket, sys, urllib.request

planted = json.loads(pathlib.Path("planted.json").read_text())
logs = pathlib.Path("run", "logs")
logs.mkdir(parents=True, exist_ok=True)
for name in planted["names"]:
    (logs / name).write_text("nothing\\n")
(logs / "train.log").write_text("\\n".join(planted["texts"]))
(logs / "config.yaml").write_text(f"api_key:\\n    value: {planted['by value']}\\n")

def train(password):
    silent = socket.create_server(("127.0.0.1", 0))
    place = f"127.0.0.1:{silent.getsockname()[1]}/d?token={planted['token']}"
    print(f"asks http://ada:{password}@{place}; the service said: {password}", flush=True)
    urllib.request.urlopen(f"http://{place}")

train(planted["by value"])
"""


def test_no_secret_of_a_job_that_hung_leaves_with_its_bundle_or_its_reports(
    jobs_here: Jobs,
) -> None:
    secrets = list(planted.planted())
    by_value, token = "Tr0ub4dor-" + secrets[0].secret[:8], secrets[-1].secret
    folder = jobs_here.folder()
    (folder / "train.py").write_text(JOB)
    told = {
        "names": [one.text for one in secrets if one.place == "file name"],
        "texts": [one.text for one in secrets if one.place != "file name"],
        "by value": by_value,
        "token": token,
    }
    (folder / "planted.json").write_text(json.dumps(told))
    variables = dict(one.text.split("=", 1) for one in secrets if one.place == "environment")
    words = [w for one in secrets if one.place == "argv" for w in one.text.split(" ")]
    watch = ("--run-dir", str(folder / "run"), "--stall", "3", "--limit", "12", "--on-hang", "end")
    command = (sys.executable, "-m", "bisect", "run", *watch, "--", sys.executable, "train.py")
    environ = {**jobs.clean_environ(), **variables}
    ended = jobs_here.add(jobs.Running((*command, *words), folder, environ), folder).end()
    assert ended.status == 3, shown(ended)  # nobody but itself can take its connection

    raw = (folder / "run" / "logs" / "train.log").read_text()
    assert all(one.secret in raw for one in secrets if one.place != "file name")
    hidden = [by_value, *(one.secret for one in secrets)]
    assert bundle([str(folder / "run"), "--output", str(folder / "run.zip"), "--anonymous"]) == 0
    with zipfile.ZipFile(folder / "run.zip") as archive:
        inside = {name: archive.read(name) for name in archive.namelist()}
    assert {name for name in inside if "/logs/" in name}
    assert "report.md" in {Path(name).name for name in inside}
    assert leaked(hidden, inside) == []
    reports = {path.name: path.read_bytes() for path in (folder / "run").glob("report.*")}
    assert leaked(hidden, reports) == []
    manifest = json.loads(inside["run/manifest.json"])
    assert len(manifest["redaction"]["replaced"]) >= 15


def leaked(secrets: Iterable[str], files: dict[str, bytes]) -> list[tuple[str, str]]:
    """Return which secret stands in which file, its name included; of a key of many lines any."""
    return [
        (line, name)
        for secret in secrets
        for line in secret.replace("\\n", "\n").split("\n")
        if not line.startswith("-----")
        for name, data in files.items()
        if line in name or line.encode() in data or json.dumps(line)[1:-1].encode() in data
    ]
