"""Helpers that move beside a main thread that waits for nobody; and those that it waits for."""

from __future__ import annotations

import sys

import pytest

from .test_monitor_never_harms import watched
from .verdicts import shown
from .whole_jobs import Job, Jobs

pytest.importorskip("torch")

PARTS = """import torch  # so it is a rank
import os, queue, socket, subprocess, sys, threading, time
from concurrent.futures import ThreadPoolExecutor

def helper(work):
    threading.Thread(target=work, daemon=True).start()

def compute(seconds=0.1):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass

def at_new_place(number, seconds=0.1):  # the same function, on a line where it never was before
    code = "\\n" * number + f"compute({seconds})"
    exec(compile(code, "reports.py", "exec"), globals())

def in_a_child(work):
    if os.fork() == 0:
        work()
        os._exit(0)

never = threading.Event()

def report():
    for number in range(100_000):
        at_new_place(number)
        never.wait(0.5)

def sample():
    for number in range(100_000):
        subprocess.run(["sh", "-c", "sleep 0.2", str(number)])
        never.wait(0.5)

def subscribe():
    with socket.create_server(("127.0.0.1", 0)) as server:
        news = socket.create_connection(server.getsockname())
        source, _ = server.accept()
        in_a_child(lambda: [source.sendall(bytes(800)) or time.sleep(0.1) for _ in iter(int, 1)])
        source.close()
        mine, theirs = socket.socketpair()  # whoever sends the news has no end of this one
        in_a_child(lambda: time.sleep(1000))
        theirs.close()
        helper(lambda: [news.recv(65536) for _ in iter(int, 1)])
        mine.recv(1)
"""
HANG = {
    "a heartbeat": "helper(report)\nnever.wait()",
    "programs started for a reading": "helper(sample)\nnever.wait()",
    "programs beside the awaited one": "helper(sample)\nsubprocess.run(['sleep', '1000'])",
    "a subscription": "subscribe()",
}
# Each lasts for 25 s, and longer than what is allowed to stand still.
HEALTHY = {
    "a thread that feeds a queue": """
items = queue.Queue()
def fetch():
    for number in range(50):
        at_new_place(number, 0.3)  # half of its time: six looks may miss a sixth of it
        never.wait(0.3)
        if number % 5 == 4:
            items.put(number)
helper(fetch)
for _ in range(10):
    items.get()
""",
    "a thread that writes a checkpoint": """
def save():
    with open(os.environ["TMPDIR"] + "/shards", "wb") as file:
        for number in range(50):
            file.write(bytes(500_000))
            file.flush()
            at_new_place(number)
            never.wait(0.4)
saver = threading.Thread(target=save)
saver.start()
saver.join()
""",
    "a thread that writes a checkpoint to slow storage": """
def save():
    with open(os.environ["TMPDIR"] + "/shards", "wb") as file:
        for _ in range(50):
            file.write(bytes(500_000))
            file.flush()
            never.wait(0.5)
saver = threading.Thread(target=save)
saver.start()
saver.join()
""",
    "a thread that reads from a program": """
def read():
    says = subprocess.Popen(
        ["sh", "-c", "for n in 1 2 3 4 5 6 7 8 9; do sleep 2.5; echo $n; done"],
        stdout=subprocess.PIPE,
    )
    return says.stdout.read()
with ThreadPoolExecutor(1) as pool:
    pool.submit(read).result()
""",
    "a thread that downloads": """
def download():
    with socket.create_server(("127.0.0.1", 0)) as server:
        hub = socket.create_connection(server.getsockname())
        source, _ = server.accept()
    in_a_child(lambda: [source.sendall(bytes(3000)) or time.sleep(0.5) for _ in range(50)])
    source.close()
    while hub.recv(65536):
        pass
with ThreadPoolExecutor(1) as pool:
    pool.submit(download).result()
""",
}


def start(jobs_here: Jobs, body: str, parts: str = PARTS) -> Job:
    folder = jobs_here.folder()
    script = folder / "train.py"
    done = "\nprint('all is done', file=sys.stderr, flush=True)\n"
    script.write_text(parts + body + done, encoding="utf-8")
    return watched(jobs_here, folder, (sys.executable, str(script)), "--stall", "4")


@pytest.mark.parametrize("scene", HANG)
def test_helpers_that_move_do_not_keep_a_dead_wait_alive(jobs_here: Jobs, scene: str) -> None:
    job = start(jobs_here, HANG[scene])
    said = job.until("still running, still watched")
    assert "SILENT  " in said or "HANG  " in said


def test_nor_where_no_rank_speaks_and_all_is_seen_from_outside(jobs_here: Jobs) -> None:
    silent = PARTS.partition("\n")[2]  # without the library by which it is known
    job = start(jobs_here, HANG["programs beside the awaited one"], silent)
    assert "SILENT  " in job.until("still running, still watched")


@pytest.mark.parametrize("scene", HEALTHY)
def test_helpers_that_are_waited_for_count(jobs_here: Jobs, scene: str) -> None:
    ended = start(jobs_here, HEALTHY[scene]).end()
    said, done, _ = ended.err.partition("all is done")
    assert done, shown(ended)
    assert "SILENT  " not in said, shown(ended)
    assert "HANG  " not in said, shown(ended)
    assert ended.verdict["outcome"] == "ok"
