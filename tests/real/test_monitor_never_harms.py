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
from jobs import Ended

from .verdicts import shown
from .whole_jobs import Job, Jobs

WORKS = """
import os, signal, sys, time
heard = []
for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT):
    signal.signal(number, lambda number, frame: heard.append(number))
print("began", flush=True)
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end and not os.path.exists("enough"):
    time.sleep(0.1)
    sum(range(400_000))
print("done", len(heard), flush=True)
"""
# Each waits until a request, or an answer, comes; a file `enough` makes it come.
ENOUGH = """
import os, socket, sys, threading, time
def when_enough(do):
    def wait():
        while not os.path.exists("enough"):
            time.sleep(0.1)
        do()
    threading.Thread(target=wait, daemon=True).start()
"""
SERVES = f"""{ENOUGH}
import asyncio
async def serve():
    loop, enough = asyncio.get_running_loop(), asyncio.Event()
    when_enough(lambda: loop.call_soon_threadsafe(enough.set))
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        print("began", flush=True)
        await enough.wait()
asyncio.run(serve())
print("done", flush=True)
"""
ACCEPTS = f"""{ENOUGH}
listener = socket.create_server(("127.0.0.1", 0))
when_enough(lambda: socket.create_connection(listener.getsockname()).close())
print("began", flush=True)
listener.accept()
print("done", flush=True)
"""
WAITS_FOR_AN_ANSWER = f"""{ENOUGH}
listener = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(listener.getsockname())
answers, _ = listener.accept()
listener.close()
when_enough(lambda: answers.sendall(b"x"))
print("began", flush=True)
client.recv(1)
print("done", flush=True)
"""
LOCKS_ITSELF_OUT = """
import os, sys, threading, time
while not os.path.exists("enough"):
    time.sleep(0.1)
lock = threading.Lock()
lock.acquire()
print("began", flush=True)
lock.acquire()
"""
FAKE_TORCH = "print('torch is there', flush=True)\n"
END = ("--on-hang", "end")
STALL = ("--stall", "3")


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


def test_nothing_is_judged_while_all_are_stopped_and_all_goes_on_afterwards(
    jobs_here: Jobs,
) -> None:
    folder = jobs_here.folder()
    command = launch(folder, WORKS, 2, 200)
    job = watched(jobs_here, folder, command, *END, "--stall", "3")
    until_watched(job)
    group = os.getpgid(job.running.process.pid)
    assert group != os.getpgid(0)
    os.killpg(group, signal.SIGSTOP)
    time.sleep(10)
    os.killpg(group, signal.SIGCONT)
    time.sleep(4)  # a stall more
    ended = enough(job)
    assert ended.status == 0, shown(ended)
    assert "HANG" not in ended.err
    assert events(folder, "paused")
    assert events(folder, "goes on")


def test_a_monitor_ignores_what_is_sent_to_the_whole_job(jobs_here: Jobs) -> None:
    folder = jobs_here.folder()
    job = watched(jobs_here, folder, launch(folder, WORKS, 2, 200), *END, "--stall", "4")
    monitor = until_watched(job)
    for name in ("USR1", "USR2", "QUIT", "HUP", "INT", "TERM", "ALRM", "TSTP"):
        monitor.send_signal(getattr(signal, f"SIG{name}"))
    time.sleep(0.5)
    assert monitor.is_running()
    assert monitor.status() != psutil.STATUS_STOPPED
    with open(f"/proc/{monitor.pid}/oom_score_adj") as file:
        assert file.read().strip() == "1000"
    ended = enough(job)
    assert (ended.status, ended.verdict["outcome"]) == (0, "ok"), shown(ended)


def test_nothing_is_left_of_what_watched_and_was_killed_or_stopped(jobs_here: Jobs) -> None:
    """And the job ends as without it. The monitor alone, or the watcher as well."""
    started: list[tuple[Job, Path]] = []
    ways = [(n, w) for n in (signal.SIGKILL, signal.SIGSTOP) for w in ("monitor", "all")]
    jobs_of_ways = []
    for _ in ways:
        folder = jobs_here.folder()
        command = launch(folder, WORKS, 2, 200)
        jobs_of_ways.append(watched(jobs_here, folder, command, *END, "--stall", "4"))
    for job, (number, whom) in zip(jobs_of_ways, ways, strict=True):
        monitor = until_watched(job)
        place = folder_of(monitor)
        started.append((job, place))
        front = job.running.process.pid
        assert (place / "owner").is_symlink()
        for pid in job.running.marked():
            words = command_of(pid)
            is_watcher = "run" in words and pid != front and parent_of(pid) != front
            if "monitor" in words or (whom == "all" and is_watcher):
                os.kill(pid, number)
    time.sleep(5)  # longer than the stall
    for job, place in started:
        ended = enough(job)
        assert ended.status == 0, shown(ended)
        assert ended.out.count("done") == 2
        assert (ended.left_processes, ended.left_files) == ([], []), shown(ended)
        assert not place.exists()
        assert events(job.folder, "hello")  # what it had written is taken over
        assert "HANG" not in ended.err


def test_a_monitor_that_can_write_nothing_any_more_leaves_no_folder(jobs_here: Jobs) -> None:
    folder = jobs_here.folder()
    job = watched(jobs_here, folder, launch(folder, WORKS, 2, 200), *END, "--stall", "4")
    monitor = until_watched(job)
    place = folder_of(monitor)
    before = {*place.parent.glob("hangbisect-files-*")}
    resource.prlimit(monitor.pid, resource.RLIMIT_FSIZE, (0, 0))
    ended = enough(job)
    assert (ended.status, ended.left_files) == (0, []), shown(ended)
    assert not [*place.parent.glob(f"{place.name}*")]
    assert not {*place.parent.glob("hangbisect-files-*")} - before or "files are in" in ended.err


def test_the_ranks_of_a_launcher_that_is_gone_are_watched_on(jobs_here: Jobs) -> None:
    folder = jobs_here.folder()
    command = launch(folder, f"print('began', flush=True)\n{LOCKS_ITSELF_OUT}", 2, 0)
    job = watched(jobs_here, folder, command, "--stall", "4")
    until_watched(job)
    (shell,) = psutil.Process(job.running.process.pid).children()
    ranks = shell.children()
    shell.kill()
    time.sleep(1.0)
    (folder / "enough").touch()
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


def test_what_is_not_proved_to_hang_is_told_and_neither_called_so_nor_ended(
    jobs_here: Jobs,
) -> None:
    """Two servers without a request, and a rank that waits for an answer."""
    started = []
    for source in (SERVES, ACCEPTS, WAITS_FOR_AN_ANSWER):
        folder = jobs_here.folder()
        started.append(watched(jobs_here, folder, launch(folder, source, 1, 0), *END, *STALL))
    for job in started[:2]:
        job.until("waits for work, as a server does")
    started[2].until("nothing proves that it hangs: it may go on")
    time.sleep(3.0)  # another look or two
    for job in started:
        ended = enough(job)
        assert (ended.status, "done" in ended.out) == (0, True), shown(ended)
        assert "HANG" not in ended.err
        assert ended.err.count("waits for work, as a server does") == (job is not started[2])


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
    watch = ("--stall", "2", "--timeout", "import_torch=20")
    ended = watched(jobs_here, folder, command, *END, *watch).end()
    assert ended.status == 3, shown(ended)
    told = [(event["outcome"], event["ends"]) for event in events(folder, "verdict")]
    assert told == [("silent", False), ("hang", True)], shown(ended)
    assert ended.err.index("SILENT  ") < ended.err.index("HANG  ")
    assert "nothing proves that it hangs: called a hang in " in ended.err


def test_a_hang_that_is_proved_is_ended_where_that_was_asked_for(jobs_here: Jobs) -> None:
    folder = jobs_here.folder()
    command = launch(folder, LOCKS_ITSELF_OUT, 2, 0)
    (folder / "enough").touch()
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
    text = f"{python} train.py 200 & sleep 1; {python} train.py 200 & wait; {python} train.py 1"
    job = watched(jobs_here, folder, ("bash", "-c", text), *END, "--stall", "3")
    until = time.monotonic() + 60
    while job.said().count("began") < 2 and time.monotonic() < until:
        time.sleep(0.05)
    monitors = [p for p in job.running.marked() if "monitor" in command_of(p)]
    assert len(monitors) == 1
    time.sleep(4)  # longer than the stall
    ended = enough(job)
    assert ended.status == 0, shown(ended)
    assert ended.left_files == []
    folders = [folder / "run", folder / "run" / "job-2", folder / "run" / "job-3"]
    for one in folders:
        verdict = json.loads((one / "verdict.json").read_text(encoding="utf-8"))
        assert verdict["outcome"] in ("ok", "silent")  # they compute little, and print nothing
    assert "debugger" not in ended.err


def enough(job: Job) -> Ended:
    """Let a job end that waits for a file `enough`; return how it ended."""
    (job.folder / "enough").touch()
    return job.end()


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
