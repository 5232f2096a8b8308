"""Who burns CPU in a wait for a GPU, with a library and a device file that stand for CUDA's: a hang
at the deadline of its step, where who computes in native code is slow.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hangbisect.zoo.case_files import find_missing

from .verdicts import check, shown
from .whole_jobs import LIGHT, Jobs

pytestmark = pytest.mark.skipif(
    bool(find_missing(["root", "unshare"])) or shutil.which("gcc") is None,
    reason=find_missing(["root", "unshare"]) or "needs gcc",
)

LIBRARY = """
volatile int flag;
int cudaStreamSynchronize(void *stream) { while (!flag); return 0; }
int add_up(void) { double sum = 0; while (!flag) sum += 1.0; return sum; }
"""
SPINS = """
import ctypes, os
gpu = open("/dev/nvidia0")
library = ctypes.CDLL(os.path.abspath("libcudart.so"))

def folder(given):
    if given.context.place.rank == 1:
        {call}
    os.makedirs("made", exist_ok=True)
    return "made"
"""
# A /dev of its own that has the device file of a GPU: an empty file.
DEVICES = """
mkdir dev && mount -t tmpfs none dev
for one in null zero full random urandom; do touch dev/$one && mount --bind /dev/$one dev/$one; done
mkdir dev/shm dev/pts && mount --rbind /dev/shm dev/shm && mount --rbind /dev/pts dev/pts
ln -s /proc/self/fd dev/fd && touch dev/nvidia0
mount --move dev /dev
exec "$@"
"""
WALK = ("--use", "logs_directory=mine:folder", "--until", "logs_directory", "--stall", "4")


def _walk(call: str, folder: Path, *words: str) -> list[str]:
    """Return the arguments of a walk whose rank 1 calls this function of the library."""
    (folder / "stands_for_cuda.c").write_text(LIBRARY)
    build = ("gcc", "-O1", "-shared", "-fPIC", "-o", "libcudart.so", "stands_for_cuda.c")
    subprocess.run(build, cwd=folder, check=True, timeout=60)
    (folder / "mine.py").write_text(SPINS.replace("{call}", call))
    return [*WALK, *words]


LAUNCHER = ["unshare", "--mount", "sh", "-ec", DEVICES, "sh"]
LAUNCHER += [sys.executable, str(LIGHT), "2", sys.executable]


def test_who_waits_for_a_gpu_hangs_at_the_deadline(light_jobs: Jobs) -> None:
    folder = light_jobs.folder()
    call = "library.cudaStreamSynchronize(None)"
    words = _walk(call, folder, "--timeout", "logs_directory=10")
    ended = light_jobs.run(*words, folder=folder, launcher=LAUNCHER)
    check(ended, "hang", culprit=[1], checkpoint="logs_directory")
    assert ended.verdict["waits_for"]["kind"] == "device", shown(ended)
    assert ended.verdict["seconds"]["past_deadline"] < 20.0, shown(ended)
    assert "SLOW " not in ended.err


def test_who_computes_is_slow_until_its_limit(light_jobs: Jobs) -> None:
    folder = light_jobs.folder()
    limits = ("--timeout", "logs_directory=6", "--slow-limit", "3")
    words = _walk("library.add_up()", folder, *limits)
    ended = light_jobs.run(*words, folder=folder, launcher=LAUNCHER)
    check(ended, "hang", culprit=[1], checkpoint="logs_directory")
    assert ended.verdict["waits_for"]["kind"] == "itself", shown(ended)
    assert ended.verdict["seconds"]["past_deadline"] > 11.0, shown(ended)
    assert "SLOW " in ended.err
