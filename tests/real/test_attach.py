"""`hangbisect attach`: real jobs that hang, found and looked at from outside."""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hangbisect.evidence.descriptors import read_quiet_times
from hangbisect.zoo.case_files import find_missing

from ..conftest import Start
from ..transcripts import block, is_printed, neutral
from .verdicts import MOST_LINES, schema

LIMIT = 120.0  # seconds
# Ranks as torchrun starts them, without the wait for torch: one process that starts two others.
LAUNCHER = """
import os, subprocess, sys
run = {"TORCHELASTIC_RUN_ID": sys.argv[2], "WORLD_SIZE": "2", "MASTER_PORT": "1"}
for rank in range(2):
    own = {"RANK": str(rank), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2", **run}
    started = subprocess.Popen([sys.executable, sys.argv[1]], env={**os.environ, **own})
started.wait()
"""
ASLEEP = """
import os, pathlib, socket, sys, time
rank = os.environ["RANK"]
a, b = socket.socketpair()
pathlib.Path(__file__).with_name(f"ready-{rank}").touch()
if rank == "1":
    a.recv(1)
time.sleep(1000)
"""
READS = """
import os, pathlib, time
pathlib.Path(__file__).with_name("ready-" + os.environ["RANK"]).touch()
while os.environ["RANK"] == "1":
    with open("/dev/zero", "rb") as file:
        file.read(1 << 22)
time.sleep(1000)
"""
# As the hub's downloads are: a lock around them, and a name that says that they are not complete.
STALLED = """
import fcntl, os, pathlib, socket, time
here, rank = pathlib.Path(__file__).parent, os.environ["RANK"]

def download(name):
    with open(here / f"{name}.incomplete", "wb") as file:
        file.write(b"x" * 4096)
        file.flush()
        hub = socket.create_connection(("127.0.0.1", PORT))
        (here / "ready-1").touch()
        file.write(hub.recv(4096))

lock = open(here / "model.lock", "w")
while rank == "0" and not (here / "ready-1").exists():
    time.sleep(0.05)
(here / f"ready-0").touch()
fcntl.flock(lock, fcntl.LOCK_EX)
download("model.safetensors")
"""
JOINS = """
import os, pathlib, time
import torch.distributed as dist

def read_the_index():
    time.sleep(1000)

os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="PORT")
pathlib.Path(__file__).with_name("ready-" + os.environ["RANK"]).touch()
if os.environ["RANK"] == "1":
    read_the_index()
dist.init_process_group("gloo")
"""
SPAWNED = """
import multiprocessing, pathlib, time

def train(rank, world_size):
    pathlib.Path(__file__).with_name(f"ready-{rank}").touch()
    time.sleep(1000)

if __name__ == "__main__":
    for rank in range(2):
        multiprocessing.get_context("fork").Process(target=train, args=(rank, 2)).start()
"""


class Here:
    """A job of this test, and what is said of it."""

    def __init__(self, start: Start, folder: Path) -> None:
        self.start, self.folder = start, folder

    def launch(self, script: str) -> int:
        """Start two ranks of a script; return their launcher's pid once both are where they go."""
        (self.folder / "torchrun").write_text(LAUNCHER)
        (self.folder / "train.py").write_text(script)
        words = (sys.executable, self.folder / "torchrun", self.folder / "train.py")
        return self.ready(*words, os.urandom(4).hex())

    def ready(self, *command: object, **how: Any) -> int:
        """Start a command; return its pid once two ranks of it have said that they are ready."""
        quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        process = self.start(*command, **quiet, **how)
        end = time.monotonic() + LIMIT
        while not all((self.folder / f"ready-{rank}").exists() for rank in range(2)):
            assert time.monotonic() < end
            assert process.poll() is None
            time.sleep(0.05)
        return process.pid

    def attach(self, *words: object, **environ: str) -> subprocess.CompletedProcess[str]:
        """Return what `hangbisect attach` says; it leaves its run folder in the test's own."""
        command = [sys.executable, "-m", "bisect", "attach", *map(str, words)]
        return subprocess.run(
            [*command, "--run-dir", str(self.run_dir)],
            capture_output=True,
            text=True,
            timeout=LIMIT,
            env={**os.environ, **environ},
        )

    @property
    def run_dir(self) -> Path:
        return self.folder / "run"

    @property
    def verdict(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.run_dir / "verdict.json").read_text())
        jsonschema.validate(found, schema())
        return found


@pytest.fixture
def here(start: Start, tmp_path: Path) -> Here:
    return Here(start, tmp_path)


def said(ended: subprocess.CompletedProcess[str]) -> Sequence[str]:
    assert "Traceback" not in ended.stderr, ended.stderr
    return ended.stdout.splitlines()


def test_a_job_that_hangs_is_explained_and_goes_on_until_it_is_to_be_ended(here: Here) -> None:
    launcher = here.launch(ASLEEP)
    ended = here.attach(launcher)
    lines = said(ended)
    assert ended.returncode == 3, ended.stdout + ended.stderr
    # Rank 1 reads from itself, and has no other thread that could write; rank 0 only sleeps.
    assert lines[0].startswith("HANG")
    assert f"end it: hangbisect attach {launcher} --kill" in ended.stdout
    assert next(n for n, line in enumerate(lines) if line.startswith("report")) < MOST_LINES
    verdict = here.verdict
    assert verdict["ranks"]["culprit"] == [1]
    assert verdict["command"][0] == "torchrun"
    assert verdict["world_size"] == 2
    names = {path.relative_to(here.run_dir).as_posix() for path in here.run_dir.rglob("*.*")}
    assert {"evidence.json", "environment.json", "stacks/rank-1.txt"} <= names
    environment = json.loads((here.run_dir / "environment.json").read_text())
    assert environment["ranks"]["1"]["RANK"] == "1"
    # The pid of a rank names the same job; --json is the same verdict.
    again = here.attach(verdict["where"][0]["pid"], "--json", "--kill", "--native-threads")
    assert again.returncode == 3
    assert json.loads(again.stdout)["ranks"] == verdict["ranks"]
    notes = json.loads(again.stdout)["notes"]
    told = [one for one in notes if one.startswith("the native frames of all threads of rank")]
    files = list(here.run_dir.rglob("stacks/rank-*-native.txt"))
    assert told
    assert len(files) == sum("are in stacks/rank-" in one for one in told)
    assert files or all("neither pystack nor gdb is here" in one for one in told)
    assert f"Ended: {launcher}, " in again.stderr
    assert here.attach(launcher).returncode == 2


def test_a_job_that_moves_is_said_to_and_never_ended(here: Here) -> None:
    launcher = here.launch(READS)
    ended = here.attach(launcher, "--kill")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "moving: rank 1 reads" in ended.stdout
    assert "It moves, so it was not ended" in ended.stderr
    assert Path(f"/proc/{launcher}").exists()


def test_ranks_of_which_no_environment_tells_are_found_by_their_frames(here: Here) -> None:
    script = here.folder / "train.py"
    script.write_text(SPAWNED)
    ended = here.attach(here.ready(sys.executable, script))
    assert ended.returncode == 4, ended.stdout + ended.stderr
    assert "2 ranks" in said(ended)[0]
    assert here.verdict["ranks"]["culprit"] == [0, 1]


def test_a_download_that_stalls_is_shown_without_a_stack_and_the_ways_to_one(here: Here) -> None:
    hidden = (
        "import sys; from hangbisect.evidence import external_tools, stacks; "
        "external_tools.find_program = lambda name='py-spy': None; "
        "stacks.find_program = external_tools.find_program; "
        "from hangbisect.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    with socket.create_server(("127.0.0.1", 0)) as hub:
        launcher = here.launch(STALLED.replace("PORT", str(hub.getsockname()[1])))
        words = (sys.executable, "-c", hidden, "attach", str(launcher), "--run-dir", here.run_dir)
        ended = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT)
    text = ended.stdout.replace(str(here.folder), "/scratch/hub")
    assert ended.returncode == 4, text + ended.stderr
    assert here.verdict["seen_by"] == "proc"
    assert here.verdict["ranks"]["culprit"] == [1]
    # Only here the hub may be a process of the same machine.
    away = re.sub(r"(?: to|,) \[?py[^(,\n]* \(\d+\)(?: is at its other end)?", "", text)
    assert is_printed(block("how-to/endless-download.md", "SILENT"), neutral(away)), text


def test_ranks_that_wait_in_vain_for_another_to_join_are_not_to_blame(here: Here) -> None:
    pytest.importorskip("torch")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    launcher = here.launch(JOINS.replace("PORT", str(port)))
    end = time.monotonic() + LIMIT
    ended = here.attach(launcher)
    while ended.returncode == 0 and time.monotonic() < end:  # it still imports torch
        ended = here.attach(launcher)
    assert here.verdict["ranks"]["culprit"] == [1]
    shown = block("how-to/initializing-distributed.md", "SILENT")
    assert is_printed(shown, neutral(ended.stdout)), ended.stdout


@pytest.mark.parametrize(
    ("pid", "fact"), [("1999999999", "there is no process 1999999999"), ("x", "PID cannot be 'x'")]
)
def test_what_cannot_be_attached_to_is_one_sentence(here: Here, pid: str, fact: str) -> None:
    ended = here.attach(pid)
    assert ended.returncode == 2
    assert fact in ended.stderr
    assert said(ended) == []


def test_a_process_that_is_no_python_is_one_sentence(here: Here) -> None:
    process = here.start("sleep", "1000")
    ended = here.attach(process.pid)
    assert ended.returncode == 2
    assert f"{process.pid} (sleep) runs no Python" in ended.stderr


def test_the_kernel_tells_when_something_came_last() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        here = socket.create_connection(server.getsockname())
        there, _ = server.accept()
        with here, there:
            time.sleep(0.3)
            there.send(b"x")
            assert here.recv(1) == b"x"
            quiet = read_quiet_times()
            heard, never = (quiet[os.fstat(one.fileno()).st_ino] for one in (here, there))
    assert heard < never
    assert never >= 0.3


@pytest.mark.skipif(
    bool(find_missing(["root", "unshare"])), reason=find_missing(["root", "unshare"])
)
def test_in_a_container_the_second_process_is_one_as_any_other(here: Here) -> None:
    """On a whole machine it is the kernel's."""
    (here.folder / "train.py").write_text(ASLEEP)
    looks = [sys.executable, "-m", "bisect", "attach", "--run-dir", str(here.run_dir)]
    inside = (
        f"RANK=0 WORLD_SIZE=1 {sys.executable} {here.folder / 'train.py'} & "
        f"until [ -e {here.folder / 'ready-0'} ]; do sleep 0.1; done; {shlex.join(looks)}"
    )
    words = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", inside)
    ended = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT)
    assert ended.returncode == 4, ended.stdout + ended.stderr
    assert here.verdict["where"][0]["pid"] == 2


def test_our_name_alone_lists_the_jobs_and_what_to_do_next(here: Here) -> None:
    launcher = here.launch(ASLEEP)
    program = Path(sys.executable).parent / "hangbisect"
    if not program.exists():
        pytest.skip("hangbisect is not installed here")
    listed = subprocess.run([program], capture_output=True, text=True, timeout=LIMIT)
    assert listed.returncode == 0, listed.stderr
    (row,) = [line for line in listed.stdout.splitlines() if f"  {launcher} " in line]
    assert "2 ranks" in row
    for command in ("hangbisect attach", "hangbisect run -- COMMAND", "hangbisect doctor"):
        assert command in listed.stdout


HELD = """
import pathlib, time

def nothing(given):
    pathlib.Path(__file__).with_name(f"ready-{given.context.place.rank}").touch()
    return None

def sleep_on_one(given):
    if given.context.place.rank == 1:
        time.sleep(1000)
"""


def test_of_a_watched_job_the_monitor_tells_the_steps_and_who_is_held(here: Here) -> None:
    """Rank 0 stands in a barrier of ours, behind the step in which rank 1 hangs."""
    (here.folder / "held.py").write_text(HELD)
    (here.folder / "torchrun").write_text(LAUNCHER.replace("sys.argv[1]]", "*sys.argv[3:]]"))
    steps = ("--use", "logs_directory=held:nothing", "--use", "tokenizer=held:sleep_on_one")
    words = ("-m", "bisect", *steps, "--until", "tokenizer", "--on-hang", "report")
    run_dir = ("--run-dir", here.folder / "watched")
    launcher = here.ready(
        *(sys.executable, here.folder / "torchrun", "", os.urandom(4).hex(), *words, *run_dir),
        cwd=here.folder,
    )
    events = here.folder / "watched" / "events.jsonl"
    end = time.monotonic() + LIMIT
    while not events.exists() or '"n": 4' not in events.read_text():
        assert time.monotonic() < end
        time.sleep(0.2)
    ended = here.attach(launcher)
    assert "It is watched by hangbisect since its start" in ended.stderr, ended.stderr
    verdict = here.verdict
    assert verdict["ranks"] == {**verdict["ranks"], "culprit": [1], "waiting": [0]}, ended.stdout
    assert verdict["checkpoint"]["name"] == "tokenizer"
    assert "rank 0 at our barrier" in ended.stdout
