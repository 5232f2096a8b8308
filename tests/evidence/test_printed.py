"""What ranks printed last, read from files of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hangbisect.evidence.lock_and_log_files import PrintingRank, read_printed_lines

Start = Callable[[Path], int]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a process that prints to a file, and waits."""
    started = []

    def begin(path: Path) -> int:
        with path.open("a") as file:
            process = subprocess.Popen(
                [sys.executable, "-c", "import time; time.sleep(600)"], stdout=file, stderr=file
            )
        started.append(process)
        return process.pid

    yield begin
    for process in started:
        process.kill()
        process.wait()


def test_the_file_of_a_rank_is_read_without_our_own_lines(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "rank-1.log"
    of_torch = "[rank1]:[E1121 ProcessGroupNCCL.cpp:685] Watchdog caught collective timeout"
    ours = "[20:01:02.003][+1.000s][R1/2][LR1][PID:7] About to import torch..."
    path.write_text(f"{ours}\n{of_torch}\n")
    assert read_printed_lines([PrintingRank(1, start(path))]) == {1: (of_torch,)}


def test_a_file_that_two_ranks_share_says_nothing_of_either(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "slurm-7.out"
    path.write_text("whose is it?\n")
    assert read_printed_lines([PrintingRank(0, start(path)), PrintingRank(1, start(path))]) == {}


def test_what_torchrun_keeps_of_a_dead_rank_is_next_to_its_error_file(tmp_path: Path) -> None:
    (tmp_path / "stderr.log").write_text("Segmentation fault\n")
    found = read_printed_lines([PrintingRank(3, None, str(tmp_path / "error.json"))])
    assert found == {3: ("Segmentation fault",)}


@pytest.mark.parametrize("error_file", ["", "no/such/folder/error.json", "\0"])
def test_what_is_not_there_is_left_out(error_file: str) -> None:
    assert read_printed_lines([PrintingRank(0, None, error_file)]) == {}


def test_a_terminal_and_a_pipe_are_no_files(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=writer, stderr=writer
    ) as process:
        try:
            assert read_printed_lines([PrintingRank(0, process.pid)]) == {}
        finally:
            process.kill()
            os.close(reader)
            os.close(writer)


def test_a_file_that_we_write_to_as_well_says_nothing_of_a_rank(
    start: Start, tmp_path: Path
) -> None:
    """As where the job and `attach` are started in one shell, whose output goes to a file."""
    path = tmp_path / "all-of-it.log"
    path.write_text("Whose is it?\n")
    printing = [PrintingRank(0, start(path))]
    with path.open("a") as ours:
        assert read_printed_lines(printing, beside=[ours.fileno()]) == {}
        assert read_printed_lines(printing) == {0: ("Whose is it?",)}
    assert read_printed_lines(printing, beside=[10_000]) == {0: ("Whose is it?",)}
