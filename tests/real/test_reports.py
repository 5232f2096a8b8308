"""The reports that a run leaves, and what is made of them afterwards: one job, which hangs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from hangbisect.monitor.child_processes import REPORTS_VARIABLE, start_report_maker
from hangbisect.monitor.watcher_link import TRIAL_VARIABLE

from ..conftest import DEADLINE
from ..transcripts import block, is_printed

PAGE = "how-to/report-a-hang.md"
NAMES = ("report.md", "report.html", "trace.json")
SECRET = "hf_" + "Zx9Qw7Er5Ty3Ui1Op8As6Df4"
FEED = f"feed?token={SECRET}"
# Rank 0 waits for a word of rank 1, which opens a FIFO that nobody writes to.
TRAIN = """\
import argparse
import os
import socket

parser = argparse.ArgumentParser()
parser.add_argument("--feed")
args = parser.parse_args()
meeting = int(os.environ["MEETING"])
if os.environ["RANK"] == "1":
    with socket.create_server(("127.0.0.1", meeting)) as server:
        other, _ = server.accept()
    feed = open(args.feed)
while os.environ["RANK"] == "0":
    try:
        other = socket.create_connection(("127.0.0.1", meeting))
    except OSError:
        continue
    other.recv(1)
"""
# Ranks as torchrun starts them, without the wait for torch.
LAUNCHER = """\
#!{python}
import os, subprocess, sys
run = dict(TORCHELASTIC_RUN_ID="here", WORLD_SIZE="2", MASTER_ADDR="n01", MASTER_PORT="1")
for rank in range(2):
    own = dict(RANK=str(rank), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE="2", **run)
    command = [sys.executable, *sys.argv[2:]]
    started = subprocess.Popen(command, env=dict(os.environ, **own))
sys.exit(started.wait())
"""


@dataclass(frozen=True)
class Hung:
    """A job that hung under `hangbisect run --on-hang end`, and where its files are."""

    folder: Path
    status: int
    printed: str
    mark: str

    @property
    def run_dir(self) -> Path:
        return self.folder / "runs" / "tonight"


@pytest.fixture(scope="module")
def hung(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hung]:
    folder = tmp_path_factory.mktemp("job")
    (folder / "train.py").write_text(TRAIN)
    launcher = folder / "torchrun"
    launcher.write_text(LAUNCHER.format(python=sys.executable))
    launcher.chmod(0o755)
    os.mkfifo(folder / FEED)
    mark = f"reports-{os.getpid()}"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        meeting = str(taken.getsockname()[1])
    environ = {
        **os.environ,
        REPORTS_VARIABLE: "",
        TRIAL_VARIABLE: "1",  # ended though nothing proves it
        "MEETING": meeting,
        **{"PATH": f"{folder}:{os.environ['PATH']}", "HANGBISECT_TEST": mark},
        **{"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(folder / "summary.md")},
        **{"HF_TOKEN": SECRET, "WANDB_BASE_URL": f"https://ada:{SECRET}@wandb.example/"},
    }
    watch = ("run", "--on-hang", "end", "--stall", "3", "--run-dir", "runs/tonight", "--")
    job = ("torchrun", "--nproc_per_node=2", "train.py", "--feed", FEED)
    process = subprocess.Popen(
        [sys.executable, str(package), *watch, *job],
        cwd=folder,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        printed, _ = process.communicate(timeout=DEADLINE)
        yield Hung(folder, process.returncode, printed, mark)
    finally:
        for pid in marked(mark):
            os.kill(pid, signal.SIGKILL)


def marked(mark: str) -> list[int]:
    """Return the pids of what was started with a mark in its environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("HANGBISECT_TEST") == mark:
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def ask(package: Path, hung: Hung, *words: str) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GITHUB_")}
    return subprocess.run(
        [sys.executable, str(package), *words],
        cwd=hung.folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )


def test_the_reports_are_there_when_the_run_returns_and_nothing_is_left(hung: Hung) -> None:
    assert hung.status == 3, hung.printed
    assert [name for name in NAMES if not (hung.run_dir / name).exists()] == []
    assert f"report    {hung.run_dir}/report.md: paste it into an issue" in hung.printed
    end = time.monotonic() + DEADLINE
    while marked(hung.mark) and time.monotonic() < end:
        time.sleep(0.1)
    assert marked(hung.mark) == []
    assert [path.name for path in hung.run_dir.iterdir() if path.name.startswith(".")] == [".lock"]


def test_they_say_what_the_verdict_says_and_hold_no_secret(hung: Hung) -> None:
    verdict = json.loads((hung.run_dir / "verdict.json").read_text())
    text = (hung.run_dir / "report.md").read_text()
    assert verdict["ranks"]["culprit"] == [1]
    headline = next(line for line in hung.printed.splitlines() if line.startswith("HANG"))
    assert headline in text
    assert "torchrun --nproc_per_node=2 train.py --feed" in text
    assert "<module> (train.py:12)" in text
    assert "feed?token=***" in text  # masked when it entered the run
    assert json.loads((hung.run_dir / "trace.json").read_text())
    for name in NAMES:
        assert SECRET not in (hung.run_dir / name).read_text(), name


def test_in_github_actions_the_step_has_it_in_its_summary(hung: Hung) -> None:
    summary = (hung.folder / "summary.md").read_text()
    assert summary.strip() == (hung.run_dir / "report.md").read_text().strip()


def test_they_are_made_again_elsewhere_and_the_page_shows_what_is_printed(
    package: Path, hung: Hung
) -> None:
    assert is_printed(
        block(PAGE, "$ hangbisect run")[1:], hung.printed.replace(str(hung.folder), "/home/ada")
    )
    made = ask(package, hung, "report", "runs/tonight", "--output", "elsewhere")
    assert made.returncode == 0, made.stderr
    assert made.stderr == ""
    shown = block(PAGE, "$ hangbisect report")[1:]
    assert is_printed(shown, made.stdout.replace("elsewhere", "runs/tonight"))
    for name in NAMES:
        again = (hung.folder / "elsewhere" / name).read_bytes()
        assert again == (hung.run_dir / name).read_bytes(), name


def test_the_verdict_is_shown_again(package: Path, hung: Hung) -> None:
    shown = ask(package, hung, "show", "runs/tonight")
    assert shown.returncode == 0, shown.stderr
    assert is_printed(block(PAGE, "$ hangbisect show")[1:], shown.stdout)
    said = [
        line for line in hung.printed.splitlines() if not line.startswith(("job  ", "report  "))
    ]
    begin = next(i for i, line in enumerate(said) if line.startswith("HANG"))
    lines = shown.stdout.splitlines()[:-1]
    assert lines == said[begin : begin + len(lines)]
    as_json = ask(package, hung, "show", "runs/tonight", "--json")
    assert json.loads(as_json.stdout) == json.loads((hung.run_dir / "verdict.json").read_text())


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("report", "nowhere"), 2, "nowhere cannot be read"),
        (("report", "."), 2, "is a folder without a verdict"),
        (("report", "runs/tonight", "--trials"), 2, "it has no trials"),
        (("report", "runs/tonight", "--anonymous", "--no-redact"), 2, "give one of them"),
        (("report", "train.py", "--anonymous"), 2, "--anonymous is for a run folder, and train.py"),
        (("report", "runs/tonight", "--output", "train.py"), 1, "cannot be written"),
        (("show", "nowhere"), 2, "nowhere is no folder"),
        (("show",), 2, "show needs a run folder"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else "",
)
def test_what_cannot_be_is_said_in_a_sentence(
    words: tuple[str, ...], status: int, said: str, package: Path, hung: Hung
) -> None:
    asked = ask(package, hung, *words)
    assert asked.returncode == status, asked.stdout + asked.stderr
    assert said in asked.stderr
    assert "Traceback" not in asked.stderr


def test_who_makes_them_is_ended_when_its_time_is_over(hung: Hung, tmp_path: Path) -> None:
    async def stopped() -> None:
        making = asyncio.create_task(start_report_maker(str(tmp_path), limit=2.0))
        while not (found := _find_report_makers(tmp_path)):
            await asyncio.sleep(0.01)
        (maker,) = found
        maker.suspend()  # as if a disk kept it
        await making
        await asyncio.to_thread(maker.wait, DEADLINE)

    asyncio.run(asyncio.wait_for(stopped(), DEADLINE))


def _find_report_makers(folder: Path) -> list[psutil.Process]:
    """Only once they run the program: a child suspended before that stops its parent's Popen."""
    found = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            words = child.cmdline()
            if "make_reports" in words and str(folder) in words[-1]:
                found.append(child)
    return found
