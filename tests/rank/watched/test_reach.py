"""Where a watch cannot be passed on by variables."""

from __future__ import annotations

import pytest
from hangbisect.rank.watched.reach import why_unreached
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    "command",
    [
        "torchrun --nproc_per_node=2 train.py",
        "srun -n 2 python train.py",
        "srun --export=ALL,A=1 -n 2 python train.py",
        "python -u train.py -I -E",
        "python -m package.train -I",
        "mpirun -n 2 python train.py",
        "accelerate launch train.py",
        "launchers/sbatch train.py",
    ],
)
def test_what_passes_variables_on_needs_no_word(command: str) -> None:
    assert why_unreached(command.split()) == ""


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("srun --export=NONE -n 2 python train.py", "--export=NONE keeps variables from srun's"),
        ("srun --export A=1 -n 2 python train.py", "--export=A=1 keeps variables"),
        ("sbatch job.sh", "in front of its srun or torchrun"),
        ("sbatch --export=NONE job.sh", "--export=NONE keeps variables from sbatch's"),
        (
            "/usr/bin/docker run --gpus all image torchrun train.py",
            "in front of the command inside",
        ),
        ("ssh n2 torchrun train.py", "the other machine has variables of its own"),
        ("python -I train.py", "python -I reads no variables"),
        ("torchrun --no-python python3 -uE train.py", "python3 -E reads no variables"),
    ],
)
def test_what_does_not_is_told_with_the_next_step(command: str, said: str) -> None:
    assert said in why_unreached(command.split())


@given(st.lists(st.text(max_size=12), max_size=8))
def test_any_command_may_be_asked_about(command: list[str]) -> None:
    assert isinstance(why_unreached(command), str)
