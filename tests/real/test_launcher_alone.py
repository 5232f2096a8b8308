"""A launcher below which nothing runs has started no rank, and is none."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hangbisect.evidence.process import descendants
from hangbisect.monitor.watcher_verdict import LauncherSnapshot, look_from_outside


@contextmanager
def started(script: str) -> Iterator[int]:
    """A process of the shell `script`, ended with its children; yields its pid."""
    with subprocess.Popen(["bash", "-c", script], start_new_session=True) as process:
        try:
            time.sleep(0.5)
            yield process.pid
        finally:
            subprocess.run(["pkill", "-9", "-s", str(process.pid)], timeout=10)
            process.wait(10)


def ranks_below(pid: int) -> dict[int, int]:
    outside = LauncherSnapshot(pid, expects_words=False)
    outside.find()
    return outside.rank_of


@pytest.mark.parametrize("name", ["torchrun", "torch.distributed.run"])
def test_a_launcher_that_has_started_nothing_is_no_rank(name: str) -> None:
    with started(f"exec -a {name} sleep 60") as pid:
        assert ranks_below(pid) == {}


def test_a_program_that_no_launcher_starts_is_its_only_rank() -> None:
    with started("exec sleep 60") as pid:
        assert ranks_below(pid) == {pid: 0}


def test_what_a_launcher_has_started_without_a_number_may_be_the_only_rank() -> None:
    """As accelerate does where there is one process and no GPU."""
    with started("exec -a accelerate bash -c 'sleep 60; true'") as pid:
        assert ranks_below(pid) == {pid: 0}


def test_of_several_programs_of_one_shell_the_first_stands_for_the_job() -> None:
    """The shell waits for all of them, and shows nothing of why."""
    program = f"{sys.executable} -c 'import time; time.sleep(60)' &"
    with started(f"{program} {program} wait") as pid:
        assert ranks_below(pid) == {min(descendants([pid])): 0}
    with started(f"{program} wait") as pid:
        assert ranks_below(pid) == {min(descendants([pid])): 0}


def test_programs_of_one_shell_with_a_number_each_are_its_ranks(tmp_path: Path) -> None:
    (tmp_path / "part.py").write_text("import time\ntime.sleep(60)\n")
    program = f"{sys.executable} {tmp_path / 'part.py'}"
    with started(f"for part in 1 0 2; do {program} $part & done; wait") as pid:
        assert [number for _, number in sorted(ranks_below(pid).items())] == [1, 0, 2]
    with started(f"{program} 0 & {program} 5 & wait") as pid:
        assert ranks_below(pid) == {min(descendants([pid])): 0}


LOADS_TORCH = """
import mmap, pathlib, time
library = pathlib.Path(__file__).with_name("libtorch_cpu.so")
library.write_bytes(bytes(4096))
with library.open("r+b") as file:
    loaded = mmap.mmap(file.fileno(), 0)
    time.sleep(60)
"""


def test_what_a_wrapper_of_python_waits_for_is_the_job(tmp_path: Path) -> None:
    """As `conda run` and agents of sweeps are: only the program below has loaded torch."""
    (tmp_path / "train.py").write_text(LOADS_TORCH)
    (tmp_path / "other.py").write_text("import time\ntime.sleep(60)\n")
    for script, is_job in (("train.py", True), ("other.py", False)):
        command = f"[{sys.executable!r}, {str(tmp_path / script)!r}]"
        wrapper = f'exec {sys.executable} -c "import subprocess; subprocess.call({command})"'
        with started(wrapper) as pid:
            time.sleep(1.0)
            outside = asyncio.run(look_from_outside(pid, expects_words=False))
            assert outside.rank_of == {min(descendants([pid])) if is_job else pid: 0}
