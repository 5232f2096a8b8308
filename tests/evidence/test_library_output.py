"""What NCCL and its watchdog printed to the files of running processes: whose it is, and since
when.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

import pytest
from hangbisect.base.identity import UnknownRank
from hangbisect.base.rank_facts import RankFacts
from hangbisect.evidence.gpus.nccl_lines import collect_nccl_facts
from hangbisect.evidence.library_output import (
    LibraryOutput,
    compile_file_pattern,
    read_birth_time,
    read_library_output,
)

from ..dumps.watchdog_texts import signalled, timed_out
from .printing_processes import Printers, printers, wait_for

# The texts of watchdog_texts.py are of 21 March, 02:07.
JOB_STARTED = datetime(2026, 3, 21, 1, 30).timestamp()
REFUSED = (
    "$HOST:$PID:$PID [0] misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to "
    "10.0.0.1<45763> failed : Connection refused"
)
VERSION = "$HOST:$PID:$PID [0] NCCL INFO NCCL version 2.24.3+cuda12.6"


@pytest.fixture
def printing(tmp_path: Path) -> Iterator[Printers]:
    with printers(tmp_path) as found:
        yield found


def read(*ranks: RankFacts, since: float = JOB_STARTED) -> LibraryOutput:
    found = LibraryOutput()
    read_library_output(ranks, since, found)
    return found


def counts(found: LibraryOutput) -> dict[object, int]:
    return {
        rank: one.counts[-1].enqueued
        for rank, messages in found.messages.items()
        for one in messages
        if one.counts
    }


def warned(found: LibraryOutput) -> dict[object, tuple[str, ...]]:
    return {r: facts.warnings for r, facts in collect_nccl_facts(found.nccl_lines).items()}


def test_each_rank_has_a_file_of_its_own(printing: Printers, tmp_path: Path) -> None:
    ranks = [
        RankFacts(n, pid=printing.start(lines, tmp_path / f"{n}.log"))
        for n, lines in enumerate([timed_out(0, 41, 43), signalled(1, 40, 40)])
    ]
    assert counts(read(*ranks)) == {0: 43, 1: 40}


def test_one_file_of_all_ranks(printing: Printers, tmp_path: Path) -> None:
    """As of `torchrun train.py > log 2>&1`: a line names the rank (the watchdog) or the process."""
    file = tmp_path / "log"
    ranks = [
        RankFacts(n, pid=printing.start([REFUSED, *lines] if n else lines, file))
        for n, lines in enumerate([timed_out(0, 41, 43), signalled(1, 40, 40)])
    ]
    found = read(*ranks)
    assert counts(found) == {0: 43, 1: 40}
    assert set(warned(found)) == {1}


def test_what_an_earlier_job_wrote_to_the_file_is_left_out(
    printing: Printers,
    tmp_path: Path,
) -> None:
    file = tmp_path / "log"
    earlier = "n01:4711:4711 [0] misc/socket.cc:484 NCCL WARN Connect to 10.0.0.9<1> failed : x"
    file.write_text("\n".join([*timed_out(0, 41, 43), earlier, ""]))
    one = RankFacts(0, pid=printing.start(["Epoch 1"], file))
    found = read(one, since=JOB_STARTED + 86400)
    assert (found.messages, found.nccl_lines) == ({}, [])


def test_a_job_over_the_turn_of_the_year(printing: Printers, tmp_path: Path) -> None:
    one = RankFacts(0, pid=printing.start(timed_out(0, 41, 43), tmp_path / "log"))
    assert counts(read(one, since=datetime(2025, 12, 31).timestamp())) == {0: 43}


def test_lines_without_a_time_are_the_jobs_in_a_file_that_was_made_for_it(
    printing: Printers, tmp_path: Path
) -> None:
    """Up to torch 2.1 the watchdog prints neither rank nor time (pytorch/pytorch#118369)."""
    lines = timed_out(0, 41, 43, version="2.1")
    file = tmp_path / "log"
    one = RankFacts(0, pid=printing.start(lines, file))
    if read_birth_time(str(file)) is None:
        pytest.skip("this file system does not tell when a file was made")
    now = time.time()
    (messages,) = read(one, since=now).messages[0]
    assert [(op.number, op.kind) for op in messages.operations] == [(41, "ALLREDUCE")]
    assert read(one, since=now + 600).messages == {}  # it was there long before


def test_lines_without_a_time_in_a_file_of_several_ranks_are_nobodys(
    printing: Printers, tmp_path: Path
) -> None:
    lines, file = timed_out(0, 41, 43, version="2.1"), tmp_path / "log"
    ranks = [RankFacts(n, pid=printing.start(lines, file)) for n in range(2)]
    assert read(*ranks, since=time.time()).messages == {}


@pytest.mark.parametrize("name", ["nccl.%h.%p.log", "{folder}/nccl.%p"])
def test_the_file_of_nccl_debug_file_is_read(
    printing: Printers,
    tmp_path: Path,
    name: str,
) -> None:
    environment = {"NCCL_DEBUG_FILE": name.format(folder=tmp_path)}
    reader, writer = os.pipe()
    try:
        pid = printing.start([], writer, [VERSION, REFUSED], environment)
    finally:
        os.close(reader)
        os.close(writer)
    found = read(RankFacts(3, pid=pid, environment=environment))
    (facts,) = collect_nccl_facts(found.nccl_lines).values()
    assert facts.version == "2.24.3"
    assert [one.address for one in facts.unreached] == ["10.0.0.1<45763>"]


def test_a_version_that_stands_alone_is_that_of_the_one_rank(
    printing: Printers,
    tmp_path: Path,
) -> None:
    """As at NCCL_DEBUG=VERSION. In a file of several ranks nobody knows whose it is."""
    line = "NCCL version 2.14.3+cuda11.5"
    own = RankFacts(0, pid=printing.start([line], tmp_path / "own"))
    shared = [RankFacts(n, pid=printing.start([line], tmp_path / "all")) for n in (1, 2)]
    facts = collect_nccl_facts(read(own, *shared).nccl_lines)
    assert {rank: one.version for rank, one in facts.items()} == {0: "2.14.3"}


def test_nothing_is_taken_out_of_a_pipe(printing: Printers) -> None:
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    try:
        one = RankFacts(0, pid=printing.start(timed_out(0, 41, 43), writer))
        assert read(one).messages == {}
        assert b"Watchdog caught" in os.read(reader, 1 << 16)
    finally:
        os.close(reader)
        os.close(writer)


def test_of_a_large_file_the_beginning_and_the_end_are_read(
    printing: Printers,
    tmp_path: Path,
) -> None:
    file = tmp_path / "log"
    one = RankFacts(0, pid=printing.start([VERSION], file))
    with file.open("a") as log:
        log.writelines("epoch 3:  41%|####      | 820/2000 [07:24<10:39]\n" for _ in range(60_000))
        log.writelines(f"{line}\n" for line in timed_out(0, 41, 43))
    began = time.monotonic()
    found = read(one)
    assert time.monotonic() - began < 30.0
    assert counts(found) == {0: 43}
    assert collect_nccl_facts(found.nccl_lines)[0].version == "2.24.3"


def test_a_rank_without_a_number_owns_what_its_own_file_says(
    printing: Printers,
    tmp_path: Path,
) -> None:
    pid = printing.start(timed_out(2, 41, 43), tmp_path / "log")
    who = UnknownRank("n01", pid)
    assert counts(read(RankFacts(who, pid=pid))) == {who: 43}


@pytest.mark.parametrize("pid", [None, 1 << 22])
def test_who_is_not_there_has_printed_nothing(pid: int | None) -> None:
    found = read(RankFacts(0, pid=pid, environment={"NCCL_DEBUG_FILE": "/tmp/x"}))
    assert (found.messages, found.nccl_lines) == ({}, [])


@pytest.mark.parametrize(
    ("value", "path", "fits"),
    [
        ("/var/log/nccl.%h.%p.txt", "/var/log/nccl.n01.4711.txt", True),
        ("/var/log/nccl.%h.%p.txt", "/var/log/nccl.n01.txt", False),
        ("nccl.%p", "/home/ada/nccl.4711", True),
        ("./logs//nccl", "/home/ada/logs/nccl", True),
        ("100%%", "/home/ada/100%", True),
        ("%x", "/home/ada/%x", True),
    ],
)
def test_what_the_variable_names(value: str, path: str, fits: bool) -> None:
    assert bool(compile_file_pattern(value).search(path)) == fits


def test_half_of_the_ranks_is_no_hindrance(printing: Printers, tmp_path: Path) -> None:
    """Of ranks whose output goes to a terminal or a pipe nothing is known, of the others all is."""

    def lines(rank: int) -> Sequence[str]:
        return signalled(rank, 40, 40) if rank == 1 else timed_out(rank, 41, 43)

    reader, writer = os.pipe()
    try:
        ranks = [
            RankFacts(n, pid=printing.start(lines(n), writer if n % 2 == 0 else tmp_path / f"{n}"))
            for n in range(4)
        ]
    finally:
        os.close(writer)
        os.close(reader)
    assert counts(read(*ranks)) == {1: 40, 3: 43}


# mpirun: its rank prints to a pipe that it reads, and it prints that to its own output.
RELAY = """#!/bin/sh
"$@" 2>&1 | cat
"""


@pytest.mark.parametrize("name", ["mpirun", "run_all"])
def test_what_a_launcher_prints_for_its_ranks_is_read(tmp_path: Path, name: str) -> None:
    """As of `mpirun train > log 2>&1`; of another program above the ranks it is who has their pipe
    for its input that writes to the file.
    """
    launcher = tmp_path / name
    launcher.write_text(RELAY)
    launcher.chmod(0o755)
    text = "\n".join([*signalled(1, 40, 40), ""])
    program = f"import os, sys, time; sys.stdout.write({text!r}); sys.stdout.flush()\n"
    program += "open(sys.argv[1], 'w').write(str(os.getpid()))\n"
    program += "os.rename(sys.argv[1], sys.argv[2]); time.sleep(600)\n"
    files = [str(tmp_path / one) for one in ("half", "ready")]
    with (tmp_path / "log").open("w") as log:
        command = [str(launcher), sys.executable, "-c", program, *files]
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        wait_for(tmp_path / "ready")
        pid = int((tmp_path / "ready").read_text())
        end = time.monotonic() + 60.0
        while "Last enqueued" not in (tmp_path / "log").read_text():
            assert time.monotonic() < end
            time.sleep(0.05)
        found = counts(read(RankFacts(1, pid=pid), RankFacts(0)))
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert found == {1: 40}


@pytest.mark.parametrize("command", ['cat > "$1"', 'tee "$1" > /dev/null', 'tee -a "$1"'])
def test_what_goes_through_a_pipe_to_a_file_is_read_there(
    printing: Printers, tmp_path: Path, command: str
) -> None:
    """As of `torchrun ... 2>&1 | tee log`: who reads the pipe writes to the file."""
    log = tmp_path / "log"
    words = ["/bin/sh", "-c", f"exec {command}", "sh", str(log)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as reader:
        try:
            assert reader.stdin is not None
            pid = printing.start(signalled(1, 40, 40), reader.stdin.fileno())
            end = time.monotonic() + 60.0
            while not log.exists() or "Last enqueued" not in log.read_text():
                assert time.monotonic() < end
                time.sleep(0.05)
            assert counts(read(RankFacts(1, pid=pid), RankFacts(0))) == {1: 40}
        finally:
            reader.kill()


def test_a_file_that_who_reads_the_pipe_only_reads_is_none(
    printing: Printers, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.write_text("".join(f"{line}\n" for line in signalled(1, 40, 40)))
    program = f"import time; kept = open({str(other)!r}); print(flush=True); time.sleep(600)"
    words = [sys.executable, "-c", program]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as reader:
        try:
            assert reader.stdin is not None
            assert reader.stdout is not None
            reader.stdout.readline()
            pid = printing.start([], reader.stdin.fileno())
            assert counts(read(RankFacts(1, pid=pid))) == {}
        finally:
            reader.kill()


@pytest.mark.parametrize(("job", "is_read"), [("4711", True), ("4712", False)])
def test_what_srun_prints_for_the_tasks_of_its_job_is_read(
    printing: Printers, tmp_path: Path, job: str, is_read: bool
) -> None:
    """In a batch script srun has its output, slurm-4711.out; tasks print to slurmstepd's pipes."""
    log = tmp_path / "slurm-4711.out"
    log.write_text("".join(f"{line}\n" for line in signalled(1, 40, 40)))
    srun = tmp_path / "srun"
    srun.symlink_to("/bin/sleep")
    environ = os.environ | {"SLURM_JOB_ID": "4711"}
    reader, writer = os.pipe()
    with log.open("a") as output, subprocess.Popen([srun, "600"], env=environ, stdout=output) as it:
        try:
            pid = printing.start([], writer)
            one = RankFacts(1, pid=pid, environment={"SLURM_JOB_ID": job})
            assert counts(read(one)) == ({1: 40} if is_read else {})
        finally:
            it.kill()
            os.close(reader)
            os.close(writer)
