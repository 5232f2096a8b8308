"""The run folder, with real files and the real helper that copies."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from hangbisect.monitor import run_folder
from hangbisect.monitor.run_folder import RunFolder

DEADLINE = 60.0


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path / "stage", tmp_path / "runs" / "one")


def publish(run: RunFolder, limit: float = DEADLINE) -> bool:
    return asyncio.run(run.publish(limit))


def names(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_everything_is_on_the_nodes_own_disk_first_and_then_in_the_run_folder(
    run: RunFolder,
) -> None:
    run.write("stacks/rank-0.txt", "rank 0\n")
    run.write_json("verdict.json", {"outcome": "ok"})
    run.note({"t": "hello", "rank": 0})
    expected = ["events.jsonl", "stacks/rank-0.txt", "verdict.json"]
    assert names(run.stage) == expected
    assert not run.path.exists()
    assert publish(run)
    assert names(run.path) == expected
    assert json.loads((run.path / "verdict.json").read_text()) == {"outcome": "ok"}


def test_what_changed_is_copied_again_and_what_others_wrote_there_is_kept(run: RunFolder) -> None:
    run.note({"t": "hello"})
    assert publish(run)
    (run.path / "logs").mkdir()
    (run.path / "logs" / "mine.log").write_text("of the job\n")
    run.note({"t": "bye"})
    assert publish(run)
    events = [json.loads(line) for line in (run.path / "events.jsonl").read_text().splitlines()]
    assert [event["t"] for event in events] == ["hello", "bye"]
    assert all(isinstance(event["wall"], float) for event in events)
    assert (run.path / "logs" / "mine.log").read_text() == "of the job\n"


@pytest.mark.parametrize("marks", [("events.jsonl",), ("verdict.json", "environment.json")])
def test_an_earlier_runs_files_are_removed_and_no_others(
    marks: tuple[str, ...], run: RunFolder
) -> None:
    kept = ["logs/mine.log", "notes.txt"]
    for name in (*marks, "report.md", "stacks/rank-7.txt", *kept):
        (run.path / name).parent.mkdir(parents=True, exist_ok=True)
        (run.path / name).touch()
    run.write("stacks/rank-0.txt", "rank 0\n")
    assert asyncio.run(run.publish(DEADLINE, first=True))
    assert names(run.path) == [*kept, "stacks/rank-0.txt"]


def test_from_a_folder_that_is_no_runs_nothing_is_removed(run: RunFolder) -> None:
    run.path.mkdir(parents=True)
    (run.path / "report.md").write_text("of mine\n")
    run.write("stacks/rank-0.txt", "rank 0\n")
    assert asyncio.run(run.publish(DEADLINE, first=True))
    assert names(run.path) == ["report.md", "stacks/rank-0.txt"]


def test_a_file_is_there_whole_or_not_at_all(run: RunFolder) -> None:
    run.write("verdict.json", "old")
    assert publish(run)
    reader = (run.path / "verdict.json").open()
    run.write("verdict.json", "newer")
    assert publish(run)
    assert (run.path / "verdict.json").read_text() == "newer"
    with reader:  # who had it open sees the file that it was
        assert reader.read() == "old"


def test_a_line_cut_short_by_a_sudden_end_is_left_out(run: RunFolder) -> None:
    run.note({"t": "hello"})
    with (run.stage / "events.jsonl").open("a") as file:
        file.write('{"t": "reac')
    assert [event["t"] for event in run.events()] == ["hello"]


def test_without_events_there_are_none(run: RunFolder) -> None:
    assert run.events() == []


@pytest.mark.parametrize("inside", ["file/run", "file"])
def test_where_no_folder_can_be_it_says_so(inside: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder\n")
    run = RunFolder(tmp_path / "stage", tmp_path / inside)
    run.write("verdict.json", "{}")
    assert not publish(run)
    assert str(tmp_path / inside) in run.trouble
    assert (run.stage / "verdict.json").exists()


def test_a_full_disk_is_said_and_nothing_raises(run: RunFolder) -> None:
    program = (
        "import sys, runpy, resource, signal\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"  # nobody may write more
        "sys.argv = sys.argv[1:]\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    run.write("verdict.json", "x" * 1000)
    copy = str(Path(run_folder.__file__).with_name("copy_run.py"))
    command = [sys.executable, "-I", "-c", program, copy, str(run.stage), str(run.path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert str(run.path) in ended.stdout
    assert not (run.path / "verdict.json").exists()
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 100


def test_a_folder_that_does_not_answer_is_given_up_in_time_and_not_asked_again(
    run: RunFolder,
) -> None:
    # A FIFO in the stage: whoever opens it to read waits for ever, as on a frozen disk.
    os.mkfifo(run.stage / "frozen")

    async def twice() -> tuple[bool, bool]:
        first = await run.publish(0.5)
        (run.stage / "frozen").unlink()
        second = await run.publish(DEADLINE)
        while psutil.Process().children():  # the loop reaps the helper that was killed
            await asyncio.sleep(0.02)
        return first, second

    assert asyncio.run(asyncio.wait_for(twice(), DEADLINE)) == (False, False)
    assert f"{run.path} does not answer" in run.trouble


def test_what_was_given_up_is_tried_once_more_when_nobody_waits(run: RunFolder) -> None:
    os.mkfifo(run.stage / "frozen")
    run.write("verdict.json", "{}")

    async def at_last() -> tuple[bool, bool]:
        first = await run.publish(0.5)
        (run.stage / "frozen").unlink()
        return first, await run.publish(DEADLINE, last=True)

    assert asyncio.run(asyncio.wait_for(at_last(), DEADLINE)) == (False, True)
    assert (run.path / "verdict.json").exists()
    assert run.is_published


def test_a_copy_that_gets_on_is_waited_for_on_a_busy_machine(run: RunFolder) -> None:
    for number in range(3000):  # for more than the limit, of files and not of a frozen disk
        run.write(f"{number}.txt", "x" * 100)
    assert publish(run, 0.2)


def test_a_file_that_cannot_be_written_here_is_a_trouble_and_no_error(tmp_path: Path) -> None:
    (tmp_path / "stage").write_text("no folder\n")
    run = RunFolder(tmp_path / "stage", tmp_path / "run")
    run.write("verdict.json", "{}")
    assert "verdict.json could not be written" in run.trouble
    run.note({"t": "hello"})
    assert "events.jsonl could not be written" in run.trouble


def test_text_that_is_no_utf_8_is_written_all_the_same(run: RunFolder) -> None:
    run.write("stacks/rank-0.txt", "a \udcff name\n")
    assert (run.stage / "stacks" / "rank-0.txt").read_text() == "a ? name\n"
