"""The run folder, with real files and the real helper that copies."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
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


def names(folder: Path | None) -> list[str]:
    assert folder is not None
    files = (p for p in folder.rglob("*") if p.is_file() and p.name != ".lock")
    return sorted(str(p.relative_to(folder)) for p in files)


def staged(run: RunFolder, name: str) -> Path:
    assert run.stage is not None
    return run.stage / name


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
        os.utime(run.path / name, (1.0, 1.0))  # long before ours began
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
    with (staged(run, "events.jsonl")).open("a") as file:
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
    assert staged(run, "verdict.json").exists()


def _copy_to_a_full_disk(run: RunFolder, base: Path, is_temporary: bool = False) -> str:
    """Return what `copy_run` says is the trouble, where nobody may write more than 100 bytes."""
    program = (
        "import sys, runpy, resource, signal\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
        "sys.argv = sys.argv[1:]\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    run.write("verdict.json", "x" * 1000)
    copy = str(Path(run_folder.__file__).with_name("copy_run.py"))
    asked = {
        "stage": str(run.stage),
        "base": str(base),
        "inside": [],
        "run": "",
        "is_temporary": is_temporary,
    }
    command = [sys.executable, "-I", "-c", program, copy, json.dumps(asked)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE)
    assert (ended.returncode, ended.stderr) == (0, "")
    return str(json.loads(ended.stdout)["trouble"])


def test_a_full_disk_is_said_and_nothing_raises(run: RunFolder) -> None:
    assert str(run.path) in _copy_to_a_full_disk(run, run.path)
    assert names(run.path) == []  # nothing half written either
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 100


@pytest.mark.parametrize("others", [(), ("of another run",)], ids=["alone", "beside another"])
def test_an_empty_folder_of_ours_is_not_left_among_temporary_files(
    others: tuple[str, ...], run: RunFolder, tmp_path: Path
) -> None:
    runs = tmp_path / "t" / "hangbisect-runs-0"
    for name in ("one", *others):
        (runs / name).mkdir(parents=True)
    assert _copy_to_a_full_disk(run, runs / "one", is_temporary=True)
    left = [path.name for path in runs.iterdir()] if runs.exists() else []
    assert left == [*others]
    assert runs.exists() == bool(others)
    assert runs.parent.exists()


def test_a_folder_that_does_not_answer_is_given_up_in_time_and_not_asked_again(
    run: RunFolder,
) -> None:
    # A FIFO in the stage: whoever opens it to read waits for ever, as on a frozen disk.
    os.mkfifo(staged(run, "frozen"))
    before = set(psutil.Process().children())  # what other tests in this process left running

    async def twice() -> tuple[bool, bool]:
        first = await run.publish(0.5)
        staged(run, "frozen").unlink()
        second = await run.publish(DEADLINE)
        while set(psutil.Process().children()) - before:  # until the killed helper is reaped
            await asyncio.sleep(0.02)
        return first, second

    assert asyncio.run(asyncio.wait_for(twice(), DEADLINE)) == (False, False)
    assert f"{run.path} does not answer" in run.trouble


def test_what_was_given_up_is_tried_once_more_when_nobody_waits(run: RunFolder) -> None:
    os.mkfifo(staged(run, "frozen"))
    run.write("verdict.json", "{}")

    async def at_last() -> tuple[bool, bool]:
        first = await run.publish(0.5)
        staged(run, "frozen").unlink()
        return first, await run.publish(DEADLINE, last=True)

    assert asyncio.run(asyncio.wait_for(at_last(), DEADLINE)) == (False, True)
    assert (run.path / "verdict.json").exists()
    assert run.is_published


def test_a_copy_that_gets_on_is_waited_for_on_a_busy_machine(run: RunFolder) -> None:
    for number in range(3000):  # for more than the limit, of files and not of a frozen disk
        run.write(f"{number}.txt", "x" * 100)
    assert publish(run, 0.2)


@pytest.fixture
def bases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Folders in which the files can be kept, in place of this machine's."""
    made = [tmp_path / "first", tmp_path / "second"]
    for base in made:
        base.mkdir(0o700)
    monkeypatch.setattr(run_folder, "bases", lambda: iter(map(str, made)))
    return made


def test_where_nothing_can_be_written_here_it_is_kept_elsewhere(
    tmp_path: Path, bases: list[Path]
) -> None:
    (tmp_path / "stage").write_text("no folder\n")
    run = RunFolder(tmp_path / "stage", tmp_path / "run")
    run.write("verdict.json", "{}")
    run.note({"t": "hello"})
    assert run.stage is not None
    assert run.stage.parent == bases[0]
    assert names(run.stage) == ["events.jsonl", "verdict.json"]
    (said,) = run.take_news()
    assert f"{tmp_path / 'stage'} cannot be written" in said
    assert str(run.stage) in said
    assert publish(run)
    assert names(run.path) == ["events.jsonl", "verdict.json"]
    run.close()
    assert list(bases[0].iterdir()) == []


def test_where_nothing_can_be_written_anywhere_it_is_kept_in_memory(
    tmp_path: Path, bases: list[Path]
) -> None:
    for base in bases:
        base.rmdir()
    (tmp_path / "stage").write_text("no folder\n")
    run = RunFolder(tmp_path / "stage", tmp_path / "run")
    run.note({"t": "hello"})
    run.write("stacks/rank-0.txt", "rank 0\n")
    assert run.stage is None
    assert run.where is None
    assert [event["t"] for event in run.events()] == ["hello"]
    assert publish(run)
    assert names(run.path) == ["events.jsonl", "stacks/rank-0.txt"]
    assert (run.path / "stacks" / "rank-0.txt").read_text() == "rank 0\n"
    run.note({"t": "bye"})
    assert publish(run)
    assert len((run.path / "events.jsonl").read_text().splitlines()) == 2
    assert run.where == run.path


def test_what_is_nowhere_is_said_to_be_lost(tmp_path: Path, bases: list[Path]) -> None:
    for base in bases:
        base.rmdir()
    (tmp_path / "file").write_text("no folder\n")
    run = RunFolder(tmp_path / "file", tmp_path / "file" / "run")
    run.write("verdict.json", "{}")
    assert not publish(run)
    (said,) = run.losses()
    assert said.endswith("they are lost")


def test_what_was_removed_under_our_hands_is_there_again(run: RunFolder, bases: list[Path]) -> None:
    run.note({"t": "hello"})
    assert publish(run)
    assert run.stage is not None
    run.write("verdict.json", "{}")
    shutil.rmtree(run.stage)  # as logind does at logout
    assert publish(run)
    assert names(run.path) == ["events.jsonl", "verdict.json"]
    run.note({"t": "bye"})
    assert publish(run)
    assert [event["t"] for event in run.events()] == ["hello", "bye"]
    assert len((run.path / "events.jsonl").read_text().splitlines()) == 2
    assert len(run.take_news()) == 1


def test_an_event_after_the_folder_was_removed_is_not_lost(
    run: RunFolder, bases: list[Path]
) -> None:
    run.note({"t": "hello"})
    assert run.stage is not None
    shutil.rmtree(run.stage)
    run.note({"t": "bye"})
    assert [event["t"] for event in run.events()] == ["hello", "bye"]
    assert run.stage.parent == bases[0]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_a_full_disk_of_ours_is_left_for_the_next(
    tmp_path: Path, bases: list[Path], small_disk: Path
) -> None:
    run = RunFolder(small_disk / "stage", tmp_path / "run")
    for number in range(1000):
        run.note({"t": "event", "number": number})
    run.write("evidence.json", "x" * 100_000)
    run.write("verdict.json", "{}")
    assert run.stage is not None
    assert run.stage.parent == bases[0]
    assert [event["number"] for event in run.events()] == list(range(1000))
    assert publish(run)
    assert names(run.path) == ["events.jsonl", "evidence.json", "verdict.json"]
    assert len((run.path / "evidence.json").read_text()) == 100_000
    (said,) = run.take_news()
    assert "No space left on device" in said


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 16 KiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=16k,mode=700", "tmpfs", str(disk)]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def test_without_descriptors_no_empty_folder_is_left(bases: list[Path]) -> None:
    lowest, limits = os.dup(0), resource.getrlimit(resource.RLIMIT_NOFILE)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, limits[1]))
    try:
        files = run_folder.StagedFiles(None)
        files.write("verdict.json", "{}")
        files.note({"t": "hello"})
        files.close(remove=True)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert files.in_memory() is not None
    assert [entry for base in bases for entry in base.iterdir()] == []


def test_after_the_end_nothing_is_made_anew(run: RunFolder, bases: list[Path]) -> None:
    run.note({"t": "hello"})
    assert publish(run)
    assert run.stage is not None
    run.close()
    shutil.rmtree(run.stage)
    run.note({"t": "bye"})
    run.write("verdict.json", "{}")
    assert list(bases[0].iterdir()) == []


def test_what_we_make_is_for_this_user_alone(run: RunFolder) -> None:
    before = os.umask(0)
    try:
        run.write("stacks/rank-0.txt", "rank 0\n")
        assert publish(run)
    finally:
        os.umask(before)
    made = [run.path.parent, run.path, run.path / "stacks"]
    assert [oct(path.stat().st_mode & 0o777) for path in made] == ["0o700"] * 3
    assert (run.path / "stacks" / "rank-0.txt").stat().st_mode & 0o777 == 0o600


def test_a_folder_that_was_there_keeps_its_mode(run: RunFolder) -> None:
    run.path.mkdir(parents=True)
    run.path.chmod(0o750)
    assert publish(run)
    assert run.path.stat().st_mode & 0o777 == 0o750


def test_where_no_process_can_be_started_the_files_are_copied_all_the_same(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_folder, "_HELPER", ("/no/such/python",))
    run.write("verdict.json", "{}")
    assert publish(run)
    assert names(run.path) == ["verdict.json"]


PUBLISH = """
import asyncio, importlib, runpy, sys
from pathlib import Path
if importlib.util.find_spec("hangbisect") is None:
    runpy.run_path(sys.argv[1] + "/bisect/__main__.py", run_name="checkout")
from hangbisect.monitor.run_folder import RunFolder
run = RunFolder(Path(sys.argv[2]), Path(sys.argv[3]))
run.write("verdict.json", "{}")
print(asyncio.run(run.publish(30.0, first=True)), *run.losses(), sep="\\n")
"""


def test_where_no_process_and_no_thread_can_be_started_the_loss_is_said(
    tmp_path: Path, checkout: Path
) -> None:
    without = str(Path(__file__).parents[1] / "real" / "without_syscalls.py")
    command = [sys.executable, without, "--errno", "EAGAIN", "clone,clone3"]
    command += [sys.executable, "-c", PUBLISH, str(checkout)]
    command += [str(tmp_path / "stage"), str(tmp_path / "run")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE)
    assert (ended.returncode, ended.stderr) == (0, "")
    done, said = ended.stdout.splitlines()
    assert done == "False"
    assert "no process and no thread can be started that copies" in said
    assert f"files are in {tmp_path / 'stage'}" in said
    assert (tmp_path / "stage" / "verdict.json").exists()


# ---- one run a folder ----------------------------------------------------------------------------


def test_a_second_run_takes_a_folder_beside_the_first_and_says_so(tmp_path: Path) -> None:
    runs = [RunFolder(tmp_path / str(n), tmp_path / "runs" / "one") for n in range(3)]
    for number, run in enumerate(runs):
        run.write("verdict.json", str(number))
        run.write_json("environment.json", {})
        assert asyncio.run(run.publish(DEADLINE, first=True))
    found = [run.path.name for run in runs]
    assert found == ["one", "one-2", "one-3"]
    assert [(run.path / "verdict.json").read_text() for run in runs] == ["0", "1", "2"]
    assert runs[0].take_news() == []
    assert runs[1].take_news() == [
        f"Another run writes in {tmp_path / 'runs' / 'one'}: using {runs[1].path}"
    ]
    assert publish(runs[0])  # goes on where it was
    assert runs[0].path.name == "one"


def test_a_nodes_folder_is_in_the_next_one_of_all_nodes(tmp_path: Path) -> None:
    runs = [RunFolder(tmp_path / str(n), tmp_path / "one", ["node-1"]) for n in range(2)]
    assert all(publish(run) for run in runs)
    assert [run.path for run in runs] == [tmp_path / "one/node-1", tmp_path / "one-2/node-1"]


def test_who_belongs_to_the_same_run_shares_its_folder(tmp_path: Path) -> None:
    first, second = (RunFolder(tmp_path / n, tmp_path / "one", run="this") for n in "ab")
    first.write("verdict.json", "{}")
    first.write("environment.json", "{}")
    assert asyncio.run(first.publish(DEADLINE, first=True))
    second.write("evidence.json", "{}")
    assert asyncio.run(second.publish(DEADLINE, first=True))
    assert second.path == first.path
    assert names(first.path) == ["environment.json", "evidence.json", "verdict.json"]


def test_the_attempts_of_a_run_stay_together(tmp_path: Path) -> None:
    one, two = (RunFolder(tmp_path / n, tmp_path / "one", run=n) for n in "ab")
    assert publish(one)
    assert publish(two)
    again = RunFolder(tmp_path / "c", tmp_path / "one", ["attempt-1"], run="b")
    end(one)
    end(two)
    assert publish(again)
    assert again.path == tmp_path / "one-2" / "attempt-1"


def test_a_run_that_has_ended_gives_its_folder_back(tmp_path: Path) -> None:
    first = RunFolder(tmp_path / "a", tmp_path / "one")
    first.note({"t": "hello"})
    assert publish(first)
    end(first)
    second = RunFolder(tmp_path / "b", tmp_path / "one")
    second.write("verdict.json", "{}")
    assert asyncio.run(second.publish(DEADLINE, first=True))
    assert second.path == first.path
    assert names(second.path) == ["verdict.json"]


def test_one_that_adds_keeps_what_its_run_wrote_and_removes_what_others_did(
    tmp_path: Path,
) -> None:
    first = RunFolder(tmp_path / "a", tmp_path / "one", run="this")
    first.note({"t": "hello"})
    assert publish(first)
    end(first)
    same = RunFolder(tmp_path / "b", tmp_path / "one", run="this", adds=True)
    same.write("verdict.json", "{}")
    assert asyncio.run(same.publish(DEADLINE, first=True))
    assert names(same.path) == ["events.jsonl", "verdict.json"]
    end(same)
    other = RunFolder(tmp_path / "c", tmp_path / "one", run="that", adds=True)
    assert asyncio.run(other.publish(DEADLINE, first=True))
    assert names(other.path) == []


def end(run: RunFolder) -> None:
    """Give the lock back, as the end of its process does."""
    assert run._lock is not None
    os.close(run._lock)


def test_text_that_is_no_utf_8_is_written_all_the_same(run: RunFolder) -> None:
    run.write("stacks/rank-0.txt", "a \udcff name\n")
    assert (staged(run, "stacks") / "rank-0.txt").read_text() == "a ? name\n"
