"""Secrets of a job stand in no file of its run folder, and in no line of ours on the terminal."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

DEADLINE = 180.0  # seconds
# Each in a place of its own, of several shapes; none is one that works anywhere.
SECRETS = {
    "exception": "hf_" + "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3z",
    "note": "ghp_" + "Zy9Xw7Vu5Ts3Rq1Po9Nm7Lk5Ji3Hg1Fe9Dc7",
    "chained": "correct-horse-battery-7",
    "warning": "wandb_v1_" + "Qw3Er5Ty7Ui9Op1As3Df5Gh7",
    "argument": "sk-ant-" + "api03-Mn4Bv6Cx8Za2Sd4Fg6Hj8",
    "argument_json": "J5kL7zX9cV1bN3mQ",
    "variable": "swordfish-42-trombone",
    "variable_json": "P9oI7uY5tR3eW1qA",
    "url": "pa55@w0rd-in-url",
    "bearer": "Ht6Gr4Fe2Dw0Sq8Az6Xs",
    "signature": "Lp0Ok9Ij8Uh7Yg6Tf5",
    "local": "Tg5Hy7Ju9Ki1Lo3Mn5Bv",
    "step": "dapi" + "0123456789abcdef0123456789abcdef",
}
SCRIPT = """\
import torch
import argparse, logging, os, sys, time

SECRETS = dict(line.split("=", 1) for line in open("secrets.txt").read().splitlines())
parser = argparse.ArgumentParser()
parser.add_argument("--api-key")
parser.add_argument("--settings")
parser.add_argument("--end")
end = parser.parse_args().end
logging.getLogger("hub").warning("cannot log in with %s", SECRETS["warning"])
logging.getLogger("hub").warning("Authorization: Bearer %s", SECRETS["bearer"])
signed = "https://u:%s@hub.example.org/x?sig=%s"
logging.getLogger("hub").warning(signed, SECRETS["url"], SECRETS["signature"])
from torch.distributed import distributed_c10d

def load(api_token, url):
    password = "local-" + api_token
    config = {"api_key": api_token, "url": url}
    if end == "silent":
        time.sleep(600)
    try:
        raise KeyError("password='%s'" % SECRETS["chained"])
    except KeyError as error:
        failure = ValueError("401 for token %s at %s" % (SECRETS["exception"], url))
        failure.__notes__ = ["with " + SECRETS["note"]]
        raise failure from error

distributed_c10d.init_process_group("https://x:%s@store/" % SECRETS["step"])
load(SECRETS["local"], "https://u:%s@hub.example.org/" % SECRETS["url"])
"""
C10D = """\
def init_process_group(url):
    pass
"""


@pytest.mark.parametrize("end", ["silent", "crash"])
def test_no_file_of_a_watched_job_holds_a_planted_secret(end: str, tmp_path: Path) -> None:
    environ = _write_job(tmp_path)
    run = [sys.executable, "-m", "hangbisect", "run", "--run-dir", "run", "--stall", "3"]
    settings = f'{{"entity": "us", "api_key": "{SECRETS["argument_json"]}"}}'
    job = [sys.executable, "train.py", "--api-key", SECRETS["argument"], "--settings", settings]
    done = subprocess.run(
        # What sleeps may be at work: it is ended at the limit.
        [*run, "--limit", "12", "--on-hang", "end", "--", *job, "--end", end],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    assert done.returncode in {"silent": (4,), "crash": (1, 5)}[end], done.stderr
    assert _held(tmp_path / "run") == []
    verdict = done.stderr[done.stderr.index(f"\n{end.upper()}  ") :]
    ours = [line for line in done.stderr.splitlines() if line.startswith("[")]
    assert len(ours) > 3
    assert _shown("\n".join([*ours, verdict])) == []
    assert _shown(done.stdout) == []


def test_no_file_of_a_pipeline_holds_a_planted_secret(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import logging\n"
        "def step(context):\n"
        "    logging.getLogger('hub').warning('cannot log in with %s', WARNING)\n"
        "    raise ValueError('401 for ' + EXCEPTION)\n"
        f"WARNING, EXCEPTION = {SECRETS['warning']!r}, {SECRETS['exception']!r}\n",
        encoding="utf-8",
    )
    environ = {**os.environ, "DB_PASSWORD": SECRETS["variable"], "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [*_pipeline(), "--use", "arguments=mine:step", "--run-dir", str(tmp_path / "run")],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    assert done.returncode != 0
    assert (tmp_path / "run" / "verdict.json").is_file(), done.stderr
    assert _held(tmp_path / "run") == []
    assert _shown(done.stdout) == []


def _pipeline() -> list[str]:
    return [sys.executable, "-m", "hangbisect", "--wandb", "off", "--until", "arguments"]


def _write_job(folder: Path) -> dict[str, str]:
    """Write the script and what it imports; return its environment."""
    package = folder / "libraries" / "torch"
    (package / "distributed").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "distributed" / "__init__.py").touch()
    (package / "distributed" / "distributed_c10d.py").write_text(C10D, encoding="utf-8")
    (folder / "train.py").write_text(SCRIPT, encoding="utf-8")
    said = "\n".join(f"{name}={value}" for name, value in SECRETS.items())
    (folder / "secrets.txt").write_text(said, encoding="utf-8")
    return {
        **os.environ,
        **{"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "PYTHONPATH": str(package.parent)},
        "HANGBISECT_REPORTS": "now",
        "WANDB_API_KEY": SECRETS["variable"],
        "WANDB_SETTINGS": f'{{"api_key": "{SECRETS["variable_json"]}"}}',
        "HTTPS_PROXY": f"http://u:{SECRETS['url']}@proxy:3128",
    }


def _held(folder: Path) -> list[tuple[str, str]]:
    """Return which file holds which secret."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) > 3
    return [
        (path.name, name)
        for path in files
        for name, value in SECRETS.items()
        if value.encode() in path.read_bytes()
    ]


def _shown(text: str) -> list[str]:
    return [name for name, value in SECRETS.items() if value in text]
