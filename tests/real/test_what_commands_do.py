"""What each command may do to a process: docs/reference/what-commands-do.md names these tests."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hangbisect.evidence.look import Target, take_looks

from ..conftest import DEADLINE, Start

# It writes down every signal that can be heard, and goes on.
HEARS = """
import os, pathlib, signal, socket, time
here = pathlib.Path(__file__)

def heard(number, frame):
    with open(here.with_name("signals"), "a") as file:
        file.write(f"{number}\\n")

for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}:
    try:
        signal.signal(number, heard)
    except (OSError, ValueError):
        pass
rank = os.environ.get("RANK", "0")
here.with_name(f"ready-{rank}").write_text(str(os.getpid()))
a, b = socket.socketpair()
if rank == "1":
    a.recv(1)
time.sleep(1000)
"""
# Ranks as torchrun starts them, without the wait for torch.
LAUNCHER = """
import os, subprocess, sys
run = {"TORCHELASTIC_RUN_ID": "here", "WORLD_SIZE": "2", "MASTER_PORT": "1"}
for rank in range(2):
    own = {"RANK": str(rank), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2", **run}
    started = subprocess.Popen([sys.executable, sys.argv[1]], env={**os.environ, **own})
started.wait()
"""
# The kernel of a notebook, as far as its command line tells, with ranks that it has forked.
KERNEL = """
import multiprocessing, os, pathlib, time

def train(rank, world_size):
    pathlib.Path(__file__).with_name(f"ready-{rank}").write_text(str(os.getpid()))
    time.sleep(1000)

for rank in range(2):
    multiprocessing.get_context("fork").Process(target=train, args=(rank, 2)).start()
"""
# Whatever a command does to a process, or starts, is told.
TOUCHES = """
import re, runpy, sys

def told(event, args):
    name = str(args[0]) if args else ""
    if event.startswith(("os.kill", "subprocess.", "os.posix_spawn", "os.fork", "os.exec",
                         "signal.", "socket.connect")) or (
            event == "open" and re.match(r"/proc/\\d+/(mem|environ|syscall|stack)", name)):
        sys.stderr.write(f"touched {event} {name}\\n")

folder = sys.argv.pop(1)
sys.addaudithook(told)
runpy.run_path(folder, run_name="__main__")
"""


def until_there(*files: Path) -> list[int]:
    """Return the numbers in the files, once all of them have one."""
    for file in files:
        until_there_is(file)
    return [int(file.read_text()) for file in files]


def until_there_is(file: Path) -> None:
    """Return once a file has something in it."""
    end = time.monotonic() + DEADLINE
    while not (file.exists() and file.read_text()):
        assert time.monotonic() < end
        time.sleep(0.05)


def job(start: Start, folder: Path, *options: object) -> list[int]:
    """Start two ranks that hang, `options` before their launcher; return the ranks' pids."""
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_text(HEARS)
    (folder / "torchrun").write_text(LAUNCHER)
    launcher = (sys.executable, folder / "torchrun", folder / "train.py")
    start(*options, *launcher, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return until_there(folder / "ready-0", folder / "ready-1")


def runs(pid: int) -> bool:
    """Return whether the process is there, and is neither stopped nor traced nor a zombie."""
    return state(pid) not in "ZXTt"


def state(pid: int) -> str:
    """Return the state of a process as the kernel says it, "X" once it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


def hang(run_dir: Path) -> dict[str, Any]:
    """Return the verdict in a run folder that nothing moves, once it is there."""
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        if (run_dir / "verdict.json").exists():
            found: dict[str, Any] = json.loads((run_dir / "verdict.json").read_text())
            if found["outcome"] in ("hang", "silent"):
                return found
        time.sleep(0.1)
    raise AssertionError(f"no hang in {run_dir}")


def ask(package: Path, *words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(package), *map(str, words)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )


def test_attach_and_doctor_send_a_job_no_signal_and_leave_it_running(
    start: Start, tmp_path: Path, package: Path
) -> None:
    ranks = job(start, tmp_path / "job")
    attached = ask(package, "attach", ranks[0], cwd=tmp_path)
    assert attached.returncode == 3, attached.stdout + attached.stderr  # it reads from itself
    assert "still running, untouched" in attached.stdout
    examined = ask(package, "doctor", "--limit", "5", cwd=tmp_path)
    assert examined.returncode in (0, 1), examined.stderr
    assert [runs(pid) for pid in ranks] == [True, True]
    assert not (tmp_path / "job" / "signals").exists()


def test_run_and_watch_only_report_and_run_ends_what_it_has_started_alone(
    start: Start, tmp_path: Path, package: Path
) -> None:
    ours = (sys.executable, package)
    stall = ("--stall", "3", "--run-dir")
    bystanders = job(start, tmp_path / "another")
    reported = job(start, tmp_path / "reported", *ours, "run", *stall, tmp_path / "run-1", "--")
    ends = (*ours, "run", "--on-hang", "end", "--limit", "20", *stall, tmp_path / "run-2", "--")
    ended = job(start, tmp_path / "ended", *ends)
    (tmp_path / "watched").mkdir()
    script = tmp_path / "watched" / "train.py"
    script.write_text(HEARS)
    alone = {**os.environ, "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    start(*ours, "watch", *stall, tmp_path / "run-3", script, env=alone)
    watched = until_there(script.with_name("ready-0"))
    for number in (1, 2, 3):
        hang(tmp_path / f"run-{number}")
    end = time.monotonic() + DEADLINE
    while any(map(runs, ended)) and time.monotonic() < end:
        time.sleep(0.1)
    assert [pid for pid in ended if runs(pid)] == []
    assert [pid for pid in (*bystanders, *reported, *watched) if not runs(pid)] == []
    for folder in ("another", "reported", "watched"):
        assert not (tmp_path / folder / "signals").exists()


def test_attach_with_kill_ends_the_ranks_and_never_the_kernel_of_a_notebook(
    start: Start, tmp_path: Path, package: Path
) -> None:
    notebook = tmp_path / "ipykernel_launcher.py"
    notebook.write_text(KERNEL)
    kernel = start(sys.executable, notebook)
    ranks = until_there(tmp_path / "ready-0", tmp_path / "ready-1")
    killed = ask(package, "attach", ranks[1], "--kill", cwd=tmp_path)
    assert killed.returncode == 4, killed.stdout + killed.stderr
    assert [pid for pid in ranks if runs(pid)] == []
    assert f"The notebook's kernel ({kernel.pid}) was left alone" in killed.stderr
    # It waits for its children at its end, as a kernel would not; so it may end by itself.
    assert kernel.wait(DEADLINE) == 0


def test_a_real_notebook_goes_on_when_the_ranks_that_its_cell_forked_are_ended(
    start: Start, tmp_path: Path, package: Path
) -> None:
    pytest.importorskip("ipykernel")
    client = pytest.importorskip("jupyter_client").BlockingKernelClient()
    file = tmp_path / "kernel.json"
    kernel = start(sys.executable, "-m", "ipykernel_launcher", "-f", file, cwd=tmp_path)
    until_there_is(file)
    client.load_connection_file(str(file))
    client.start_channels()
    client.wait_for_ready(timeout=DEADLINE)
    joins = "for one in multiprocessing.active_children(): one.join()"
    cell = client.execute(f"{KERNEL.replace('__file__', repr(str(tmp_path / 'cell')))}\n{joins}")
    ranks = until_there(tmp_path / "ready-0", tmp_path / "ready-1")
    seen = ask(package, "attach", kernel.pid, cwd=tmp_path)
    assert f"the notebook's kernel ({kernel.pid}) is left alone" in seen.stdout, seen.stderr
    assert "--kill" not in seen.stdout
    assert "2 ranks" in seen.stdout
    ask(package, "attach", kernel.pid, "--kill", cwd=tmp_path)
    assert [pid for pid in ranks if runs(pid)] == []
    answered = client.get_shell_msg(timeout=DEADLINE)
    while answered["parent_header"]["msg_id"] != cell:
        answered = client.get_shell_msg(timeout=DEADLINE)
    assert answered["content"]["status"] == "ok"  # the cell has ended, and the kernel runs
    client.stop_channels()


def test_a_look_pauses_only_for_native_frames(start: Start) -> None:
    code = "import time; print('now', flush=True); time.sleep(1000)"
    process = start(sys.executable, "-c", code)
    assert process.stdout is not None
    assert process.stdout.readline()
    for native in (False, True):
        states: set[str] = set()
        with ThreadPoolExecutor(1) as aside:
            seen = aside.submit(asyncio.run, take_looks([Target(process.pid)], native=native))
            while not seen.done():
                states.add(state(process.pid))
        assert seen.result()[0].threads
        assert ("t" in states) == native, states
    assert runs(process.pid)


@pytest.mark.parametrize(
    "words",
    [
        ("merge", "rank0.txt"),
        ("report", "job.log"),
        ("compare", "run", "run"),
        ("bundle", "run"),
        ("matrix", "recommended", "--dry-run"),
    ],
    ids=lambda words: words[0],
)
def test_what_reads_files_touches_no_process(
    words: tuple[str, ...], start: Start, tmp_path: Path, package: Path
) -> None:
    dump = 'Thread 7 (idle): "MainThread"\n    main (train.py:3)\n'
    (tmp_path / "rank0.txt").write_text(f"Process 7: python train.py\n\n{dump}")
    line = "[10:00:00.000][+0.100s][R0/1][LR0][PID:7] CHECKPOINT 1: Script started\n"
    (tmp_path / "job.log").write_text(line)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "verdict.json").write_text('{"schema": 1, "outcome": "ok"}')
    (tmp_path / "touches.py").write_text(TOUCHES)
    process = start(sys.executable, tmp_path / "touches.py", package, *words, cwd=tmp_path)
    out, err = process.communicate(timeout=DEADLINE)
    assert out
    assert "Traceback" not in err
    assert [line for line in err.splitlines() if line.startswith("touched")] == []
