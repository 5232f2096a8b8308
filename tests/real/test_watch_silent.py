"""Walks in which a rank stands still and nothing proves that it hangs: silent first, and what
becomes of it after that.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from jobs import Ended

from .test_monitor_never_harms import launch, watched
from .verdicts import check, shown
from .whole_jobs import Job, Jobs

# Rank 1 waits for an answer that nobody can tell to come: it does after AFTER seconds.
WAITS = """
import os, socket, threading, time
mine, theirs = socket.socketpair()

def answer():
    time.sleep(float(os.environ["AFTER"]))
    theirs.send(b"x")

def folder(given):
    if given.context.place.rank == 1:
        mine.settimeout(float(os.environ["GIVES_UP"]) or None)
        threading.Thread(target=answer, daemon=True).start()
        mine.recv(1)
    os.makedirs("made", exist_ok=True)
    return "made"
"""
WALK = ("--use", "logs_directory=mine:folder", "--until", "logs_directory", "--stall", "4")


def start(light_jobs: Jobs, *words: str, answers: float = 1000.0, gives_up: float = 0.0) -> Job:
    folder = light_jobs.folder()
    (folder / "mine.py").write_text(WAITS)
    environ = {**os.environ, "AFTER": str(answers), "GIVES_UP": str(gives_up)}
    return light_jobs.start(*WALK, *words, folder=folder, environ=environ)


def verdicts(ended: Ended) -> list[Any]:
    """Return which verdicts there were, one after another, and whether each ended the job."""
    lines = Path(ended.run_dir / "events.jsonl").read_text(encoding="utf-8").splitlines()
    found = [event for event in map(json.loads, lines) if event["t"] == "verdict"]
    return [(event["outcome"], event["ends"]) for event in found]


def test_it_is_told_at_once_and_a_hang_at_the_deadline_of_its_step(light_jobs: Jobs) -> None:
    ended = start(light_jobs, "--timeout", "logs_directory=15").end()
    check(ended, "hang", culprit=[1], checkpoint="logs_directory")
    assert verdicts(ended) == [("silent", False), ("hang", True)], shown(ended)
    assert ended.err.index("SILENT  ") < ended.err.index("HANG  ")
    assert "called a hang in " in ended.err
    assert ended.verdict["seconds"]["past_deadline"] is not None


def test_an_answer_that_comes_before_that_takes_it_back(light_jobs: Jobs) -> None:
    ended = start(light_jobs, "--timeout", "logs_directory=60", answers=15.0).end()
    assert "SILENT  " in ended.err, shown(ended)
    assert "Taken back: rank 1 moves again" in ended.err
    assert ended.verdict["outcome"] == "ok"
    assert ended.status == 0


def test_whoever_gives_up_by_itself_before_that_has_crashed(light_jobs: Jobs) -> None:
    ended = start(light_jobs, "--timeout", "logs_directory=60", gives_up=15.0).end()
    check(ended, "crash", culprit=[1], checkpoint="logs_directory")
    assert "SILENT  " in ended.err, shown(ended)
    assert "TimeoutError" in ended.err


def test_its_own_time_limit_is_waited_for_where_that_is_later_than_the_deadline(
    light_jobs: Jobs,
) -> None:
    ended = start(light_jobs, "--timeout", "logs_directory=5", gives_up=20.0).end()
    check(ended, "crash", culprit=[1], checkpoint="logs_directory")
    assert verdicts(ended)[0] == ("silent", False), shown(ended)


def test_at_the_limit_of_all_it_is_ended_and_still_only_silent(light_jobs: Jobs) -> None:
    ended = start(light_jobs, "--timeout", "logs_directory=60", "--limit", "15").end()
    check(ended, "silent", culprit=[1], checkpoint="logs_directory")
    assert verdicts(ended)[-1] == ("silent", True), shown(ended)


def test_an_interrupted_one_names_who_stood_still(light_jobs: Jobs) -> None:
    job = start(light_jobs, "--timeout", "logs_directory=60")
    job.until("SILENT  ")
    os.killpg(job.running.process.pid, signal.SIGINT)
    ended = job.end()
    assert ended.verdict["outcome"] in ("silent", "interrupted"), shown(ended)
    assert ended.verdict["ranks"]["culprit"] == [1]
    assert ended.left_processes == [], shown(ended)


@pytest.mark.parametrize("kind", ["stop", "sleep"])
def test_what_is_proved_is_a_hang_at_once(kind: str, light_jobs: Jobs) -> None:
    """A stopped rank, and one that sleeps for years while the other waits for it."""
    ended = light_jobs.run(
        *("--stall", "5", "--timeout", "60", "--inject", f"{kind}@logs_directory:rank1")
    )
    check(ended, "hang", culprit=[1], checkpoint="logs_directory")
    assert verdicts(ended) == [("hang", True)], shown(ended)
    assert ended.verdict["seconds"]["past_deadline"] is None
    assert ended.verdict["seconds"]["still"] >= 5.0


GIVES_UP = """
import os, socket, time
if os.environ["RANK"] == "1":
    mine, theirs = socket.socketpair()
    mine.settimeout(40)
    mine.recv(1)
time.sleep(60)
"""
GIVES_UP_ON_ANOTHER = """
import datetime, socket
import torch.distributed as dist
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
if dist.get_rank() == 1:
    mine, theirs = socket.socketpair()
    mine.settimeout(60)
    mine.recv(1)
dist.barrier()
"""


def test_a_script_that_gives_up_by_itself_has_crashed(jobs_here: Jobs) -> None:
    folder = jobs_here.folder()
    command = launch(folder, GIVES_UP, 2, 0)
    ended = watched(jobs_here, folder, command, "--stall", "4").end()
    assert "SILENT  " in ended.err, shown(ended)
    verdict = ended.verdict
    assert (verdict["outcome"], verdict["ranks"]["culprit"]) == ("crash", [1]), shown(ended)


def test_who_gives_up_on_one_that_is_silent_is_not_to_blame(jobs_here: Jobs) -> None:
    pytest.importorskip("torch")
    folder = jobs_here.folder()
    (folder / "train.py").write_text(GIVES_UP_ON_ANOTHER)
    launcher = (str(Path(sys.executable).parent / "torchrun"), "--nproc_per_node=2")
    command = (*launcher, "--standalone", str(folder / "train.py"))
    ended = watched(jobs_here, folder, command, "--stall", "4").end()
    verdict = ended.verdict
    assert (verdict["outcome"], verdict["ranks"]["culprit"]) == ("silent", [1]), shown(ended)
    assert verdict["ranks"]["waiting"] == [0]


# A process that it has started holds a lock that it waits for, and leaves word of itself.
OWNED = """
import multiprocessing, os, time

def keep(lock, has_it):
    lock.acquire()
    has_it.set()
    time.sleep(1000)

if __name__ == "__main__":
    lock, has_it = multiprocessing.Lock(), multiprocessing.Event()
    owner = multiprocessing.Process(target=keep, args=(lock, has_it), daemon=True)
    owner.start()
    has_it.wait()
    with open("owner.new", "w") as file:
        file.write(str(owner.pid))
    os.rename("owner.new", "owner")
    with lock:
        pass
"""


def test_a_proof_that_comes_later_makes_it_a_hang(jobs_here: Jobs) -> None:
    """The one that it waits for is killed after 30 s, in which nothing more was said: nobody gives
    the lock back.
    """
    folder = jobs_here.folder()
    command = launch(folder, OWNED, 1, 0)
    job = watched(jobs_here, folder, command, "--stall", "4", "--on-hang", "end")
    job.until("SILENT  ")
    time.sleep(30)
    said = job.said()
    assert said.count("SILENT  ") == 1
    assert "HANG  " not in said
    assert "Taken back" not in said
    os.kill(int((folder / "owner").read_text()), signal.SIGKILL)
    ended = job.end()
    verdict = ended.verdict
    assert (verdict["outcome"], verdict["ranks"]["culprit"]) == ("hang", [0]), shown(ended)
    assert verdict["cause"]["id"] == "dead-owner"
    assert [one for one, _ in verdicts(ended)] == ["silent", "hang"], shown(ended)
    assert ended.status == 3
