"""The node monitor, when it fails, is short of something, or sees what only looks like a hang: the
job is the same as without it.

Light scripts: launched by a shell that gives each its rank, they are watched without any library.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shlex
import signal
import sys
import time
from pathlib import Path
from typing import Any

import jobs
import psutil
import pytest

from . import without_syscalls
from .verdicts import shown
from .whole_jobs import Job, Jobs

WORKS = """
import os, signal, sys, time
heard = []
for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT):
    signal.signal(number, lambda number, frame: heard.append(number))
print("began", flush=True)
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    time.sleep(0.1)
    sum(range(3_000_000))
print("done", len(heard), flush=True)
"""
SERVES = """
import asyncio, sys
async def serve():
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        print("began", flush=True)
        await asyncio.sleep(float(sys.argv[1]))
asyncio.run(serve())
print("done", flush=True)
"""
ACCEPTS = """
import socket, sys, threading
listener = socket.create_server(("127.0.0.1", 0))
def ask():
    socket.create_connection(listener.getsockname()).close()
timer = threading.Timer(float(sys.argv[1]), ask)
timer.daemon = True
timer.start()
print("began", flush=True)
listener.accept()
print("done", flush=True)
"""
WAITS_FOR_AN_ANSWER = """
import socket, sys, threading, time
listener = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(listener.getsockname())
answers, _ = listener.accept()
listener.close()
def answer():
    time.sleep(float(sys.argv[1]))
    answers.sendall(b"x")
threading.Thread(target=answer, daemon=True).start()
print("began", flush=True)
client.recv(1)
print("done", flush=True)
"""
LOCKS_ITSELF_OUT = """
import sys, threading, time
time.sleep(float(sys.argv[1]))
lock = threading.Lock()
lock.acquire()
print("began", flush=True)
lock.acquire()
"""
FAKE_TORCH = "print('torch is there', flush=True)\n"
END = ("--on-hang", "end")


def launch(folder: Path, source: str, ranks: int, seconds: float) -> tuple[str, ...]:
    """Return the command that starts `ranks` ranks of a script, and has the status of one that
    failed.
    """
    (folder / "train.py").write_text(source, encoding="utf-8")
    start = f"RANK=$r LOCAL_RANK=$r {shlex.quote(sys.executable)} train.py {seconds} & pids+=($!)"
    text = (
        f"export WORLD_SIZE={ranks} LOCAL_WORLD_SIZE={ranks} MASTER_ADDR=127.0.0.1 "
        f"MASTER_PORT=29500; pids=(); status=0; for r in $(seq 0 {ranks - 1}); do {start}; done; "
        'for p in "${pids[@]}"; do wait $p || status=$?; done; exit $status'
    )
    return ("bash", "-c", text)


def watched(
    jobs_here: Jobs, folder: Path, command: tuple[str, ...], *watch: str, before: str = ""
) -> Job:
    """Start `hangbisect run WATCH -- COMMAND`, by a shell that does what is to be done `before`."""
    words = (sys.executable, "-m", "bisect", "run", "--run-dir", str(folder / "run"), *watch)
    whole = shlex.join([*words, "--", *command])
    environ = {**jobs.clean_environ(), "PYTHONPATH": str(folder / "libraries")}
    start = ("bash", "-c", f"{before} exec {whole}" if before else f"exec {whole}")
    return jobs_here.add(jobs.Running(start, folder, environ), folder)


def events(folder: Path, kind: str = "") -> list[dict[str, Any]]:
    lines = (folder / "run" / "events.jsonl").read_text(encoding="utf-8").splitlines()
    return [event for event in map(json.loads, lines) if event["t"] == kind or not kind]


@pytest.mark.parametrize("descriptors", [28, 20])
def test_a_monitor_short_of_descriptors_ends_nothing_and_says_so_once(
    jobs_here: Jobs, descriptors: int
) -> None:
    folder = jobs_here.folder()
    command = launch(folder, WORKS, 8, 12)
    before = f"ulimit -n {descriptors};"
    ended = watched(jobs_here, folder, command, *END, "--stall", "4", before=before).end()
    assert ended.status == 0, shown(ended)
    assert ended.out.count("done") == 8
    assert ended.err.count("short of descriptors") <= 2, shown(ended)  # said; files that stay
    assert "HANG" not in ended.err


def test_nothing_is_judged_while_all_are_stopped_and_all_goes_on_afterwards(
    jobs_here: Jobs,
) -> None:
    folder = jobs_here.folder()
    command = launch(folder, WORKS, 2, 20)
    job = watched(jobs_here, folder, command, *END, "--stall", "3")
    until_watched(job)
    group = os.getpgid(job.running.process.pid)
    assert group != os.getpgid(0)
    os.killpg(group, signal.SIGSTOP)
    time.sleep(10)
    os.killpg(group, signal.SIGCONT)
    ended = job.end()
    assert ended.status == 0, shown(ended)
    assert "HANG" not in ended.err
    assert events(folder, "paused")
    assert events(folder, "goes on")


def test_a_monitor_ignores_what_is_sent_to_the_whole_job(jobs_here: Jobs) -> None:
    folder = jobs_here.folder()
    job = watched(jobs_here, folder, launch(folder, WORKS, 2, 8), *END, "--stall", "4")
    monitor = until_watched(job)
    for name in ("USR1", "USR2", "QUIT", "HUP", "INT", "TERM", "ALRM", "TSTP"):
        monitor.send_signal(getattr(signal, f"SIG{name}"))
    time.sleep(0.5)
    assert monitor.is_running()
    assert monitor.status() != psutil.STATUS_STOPPED
    with open(f"/proc/{monitor.pid}/oom_score_adj") as file:
        assert file.read().strip() == "1000"
    ended = job.end()
    assert (ended.status, ended.verdict["outcome"]) == (0, "ok"), shown(ended)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_job_whose_monitors_are_killed_or_stopped_ends_as_without_them(
    jobs_here: Jobs, number: signal.Signals
) -> None:
    folder = jobs_here.folder()
    job = watched(jobs_here, folder, launch(folder, WORKS, 2, 8), *END, "--stall", "4")
    monitor = until_watched(job)
    monitor.send_signal(number)
    until = time.monotonic() + 60
    while job.said().count("done") < 2 and time.monotonic() < until:
        time.sleep(0.1)
    assert job.said().count("done") == 2, job.said()
    with contextlib.suppress(psutil.NoSuchProcess):
        monitor.resume()
    ended = job.end()
    assert ended.status == 0, shown(ended)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("whom", ["monitor", "all"])
def test_nothing_is_left_of_what_watched_and_was_killed_or_stopped(
    jobs_here: Jobs, number: signal.Signals, whom: str
) -> None:
    folder = jobs_here.folder()
    job = watched(jobs_here, folder, launch(folder, WORKS, 2, 6), *END, "--stall", "4")
    monitor = until_watched(job)
    place = folder_of(monitor)
    front = job.running.process.pid
    assert (place / "owner").is_symlink()
    for pid in job.running.marked():
        words = command_of(pid)
        is_watcher = "run" in words and pid != front and parent_of(pid) != front
        if "monitor" in words or (whom == "all" and is_watcher):
            os.kill(pid, number)
    ended = job.end(rest=60)
    assert ended.status == 0, shown(ended)
    assert ended.out.count("done") == 2
    assert (ended.left_processes, ended.left_files) == ([], []), shown(ended)
    assert not place.exists()
    assert events(folder, "hello")  # what it had written is taken over
    assert "HANG" not in ended.err


def test_a_monitor_that_can_write_nothing_any_more_leaves_no_folder(jobs_here: Jobs) -> None:
    folder = jobs_here.folder()
    job = watched(jobs_here, folder, launch(folder, WORKS, 2, 6), *END, "--stall", "4")
    monitor = until_watched(job)
    place = folder_of(monitor)
    before = {*place.parent.glob("hangbisect-files-*")}
    resource.prlimit(monitor.pid, resource.RLIMIT_FSIZE, (0, 0))
    ended = job.end()
    assert (ended.status, ended.left_files) == (0, []), shown(ended)
    assert not [*place.parent.glob(f"{place.name}*")]
    assert not {*place.parent.glob("hangbisect-files-*")} - before or "files are in" in ended.err


def test_the_ranks_of_a_launcher_that_is_gone_are_watched_on(jobs_here: Jobs) -> None:
    folder = jobs_here.folder()
    command = launch(folder, f"print('began', flush=True)\n{LOCKS_ITSELF_OUT}", 2, 8)
    job = watched(jobs_here, folder, command, "--stall", "4")
    until_watched(job)
    (shell,) = psutil.Process(job.running.process.pid).children()
    ranks = shell.children()
    shell.kill()
    try:
        until = time.monotonic() + 90
        while time.monotonic() < until and not (folder / "run" / "verdict.json").exists():
            time.sleep(0.2)
        time.sleep(1.0)
        said = [event["text"] for event in events(folder, "said")]
        alone = f"The launcher (pid {shell.pid}) is gone; its ranks go on, still watched"
        assert alone in said
        assert [event["outcome"] for event in events(folder, "verdict")] == ["hang"]
        assert all(rank.is_running() for rank in ranks)
    finally:
        for rank in ranks:
            rank.kill()


@pytest.mark.parametrize("refusal", ["ENOSYS", "EPERM"])
def test_without_pidfds_ranks_are_watched_to_their_end(jobs_here: Jobs, refusal: str) -> None:
    folder = jobs_here.folder()
    refuse = shlex.join([sys.executable, without_syscalls.__file__, "--errno", refusal])
    text = shlex.join(launch(folder, WORKS, 2, 8))
    command = ("bash", "-c", f"{refuse} pidfd_open {text}")
    ended = watched(jobs_here, folder, command, *END, "--stall", "4").end()
    assert ended.status == 0, shown(ended)
    assert ended.verdict["outcome"] == "ok"
    last = max(event["at"] for event in events(folder, "ended"))
    assert last - min(event["at"] for event in events(folder, "hello")) > 7
    assert {event["status"] for event in events(folder, "ended")} <= {0, None}


@pytest.mark.parametrize("source", [SERVES, ACCEPTS])
def test_a_server_without_a_request_is_neither_called_hung_nor_ended(
    jobs_here: Jobs, source: str
) -> None:
    folder = jobs_here.folder()
    ended = watched(jobs_here, folder, launch(folder, source, 1, 14), *END, "--stall", "3").end()
    assert ended.status == 0, shown(ended)
    assert "HANG" not in ended.err
    assert ended.err.count("waits for work, as a server does") == 1


def test_what_stands_still_and_is_not_proved_to_hang_is_told_and_not_ended(
    jobs_here: Jobs,
) -> None:
    folder = jobs_here.folder()
    command = launch(folder, WAITS_FOR_AN_ANSWER, 1, 14)
    ended = watched(jobs_here, folder, command, *END, "--stall", "3").end()
    assert ended.status == 0, shown(ended)
    assert "nothing proves that it hangs: it may go on" in ended.err
    assert "done" in ended.out
    assert "HANG" not in ended.err


IMPORTS_FOR_EVER = """
import socket, threading, time
mine, theirs = socket.socketpair()
def keep():
    time.sleep(1000)
    theirs.send(b"x")
threading.Thread(target=keep, daemon=True).start()
mine.recv(1)
"""


def test_what_is_only_silent_is_a_hang_at_the_deadline_of_its_step_and_ended_then(
    jobs_here: Jobs,
) -> None:
    folder = jobs_here.folder()
    (folder / "libraries").mkdir()
    (folder / "libraries" / "torch.py").write_text(IMPORTS_FOR_EVER, encoding="utf-8")
    command = launch(folder, "import torch", 1, 0)
    watch = ("--stall", "2", "--timeout", "import_torch=12")
    ended = watched(jobs_here, folder, command, *END, *watch).end()
    assert ended.status == 3, shown(ended)
    told = [(event["outcome"], event["ends"]) for event in events(folder, "verdict")]
    assert told == [("silent", False), ("hang", True)], shown(ended)
    assert ended.err.index("SILENT  ") < ended.err.index("HANG  ")
    assert "nothing proves that it hangs: called a hang in " in ended.err


def test_a_hang_that_is_proved_is_ended_where_that_was_asked_for(jobs_here: Jobs) -> None:
    folder = jobs_here.folder()
    command = launch(folder, LOCKS_ITSELF_OUT, 2, 1)
    ended = watched(jobs_here, folder, command, *END, "--stall", "3").end()
    assert ended.status == 3, shown(ended)
    assert ended.verdict["outcome"] == "hang"
    (verdict,) = events(folder, "verdict")
    assert (verdict["ends"], bool(verdict["proof"])) == (True, True)


def test_several_programs_of_one_command_have_one_monitor_and_a_folder_each(
    jobs_here: Jobs,
) -> None:
    folder = jobs_here.folder()
    (folder / "libraries").mkdir()
    (folder / "libraries" / "torch.py").write_text(FAKE_TORCH, encoding="utf-8")
    (folder / "train.py").write_text(f"import torch\n{WORKS}", encoding="utf-8")
    python = shlex.quote(sys.executable)
    text = f"{python} train.py 9 & sleep 1; {python} train.py 5 & wait; {python} train.py 1"
    job = watched(jobs_here, folder, ("bash", "-c", text), *END, "--stall", "3")
    until = time.monotonic() + 60
    while job.said().count("began") < 2 and time.monotonic() < until:
        time.sleep(0.05)
    monitors = [p for p in job.running.marked() if "monitor" in command_of(p)]
    assert len(monitors) == 1
    ended = job.end()
    assert ended.status == 0, shown(ended)
    assert ended.left_files == []
    folders = [folder / "run", folder / "run" / "job-2", folder / "run" / "job-3"]
    for one in folders:
        verdict = json.loads((one / "verdict.json").read_text(encoding="utf-8"))
        assert verdict["outcome"] in ("ok", "silent")  # they compute little, and print nothing
    assert "debugger" not in ended.err


def until_watched(job: Job) -> psutil.Process:
    """Wait until ranks have begun and their monitor has come up; return it."""
    job.until("began")
    until = time.monotonic() + 60
    while time.monotonic() < until:
        with contextlib.suppress(AssertionError):
            monitor = job.monitor()
            if (job.folder / "run" / "events.jsonl").exists():  # its first copy
                time.sleep(1.0)  # what watches is loaded now
                return monitor
        time.sleep(0.05)
    raise AssertionError(job.said())


def folder_of(monitor: psutil.Process) -> Path:
    """Return the folder of a monitor's socket, of which it is told as it starts."""
    return Path(json.loads(monitor.cmdline()[5])["folder"])


def parent_of(pid: int) -> int:
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).ppid()
    return 0


def command_of(pid: int) -> list[str]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).cmdline()[:6]
    return []
