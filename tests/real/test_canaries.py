"""Calls in which ranks of libraries wait, for real: benchmarks/canaries.py has them all, and the
oldest versions too.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import canaries
import pytest
from canary_table import CANARIES

# One of each way in which it is seen: a store, a collective, C++ below autograd, a library's call,
# a barrier of a library's own with the other rank in code of the job, the lock on a file, the lock
# of a cache whose owner waits for a server.
SAMPLE = (
    "torch.init_process_group",
    "torch.barrier",
    "torch.backward",
    "accelerate.wait_for_everyone",
    "lightning.Fabric.rank_zero_first block",
    "filelock.FileLock.acquire",
    "huggingface_hub.hf_hub_download shared",
)


@pytest.mark.timeout(900)  # each has 90 s for its look, and libraries are imported
def test_ranks_that_wait_in_calls_of_libraries_are_seen() -> None:
    chosen = [one for one in CANARIES if one.name in SAMPLE]
    seen = list(canaries.try_canaries(chosen, sys.executable))
    assert [one.canary.name for one in seen] == [one.name for one in chosen]
    assert not [(one.canary.name, one.wrong) for one in seen if one.wrong]


def test_each_canary_is_a_meeting_that_the_rank_knows() -> None:
    program = "import canary_rank; print(*canary_rank.MEETINGS, sep='\\n')"
    said = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "RANK": "0", "CANARY_FOLDER": ""},
        cwd=canaries.PROGRAM.parent,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=300,
    )
    assert {one.name for one in CANARIES} == set(said.stdout.splitlines())
    assert len({one.name for one in CANARIES}) == len(CANARIES)


def test_the_oldest_versions_are_those_that_the_package_claims() -> None:
    project = Path(canaries.__file__).parent.parent / "pyproject.toml"
    lowest = canaries.find_lowest_versions(project)
    assert {one.partition("==")[0] for one in lowest} == {
        "accelerate",
        "deepspeed",
        "pytorch-lightning",
        "transformers",
        "wandb",
    }
    assert all(re.fullmatch(r"[\w-]+==\d+\.\d+\.\*", one) for one in lowest)
