"""Where a watch cannot be passed on by variables."""

from __future__ import annotations

from pathlib import Path

import pytest
from hangbisect.rank.watched.unreached_ranks import why_unreached
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
        "python -W ignore::ImportWarning -Xdev train.py",
        "python -W error -u train.py --to ssh",
        "env A=1 python train.py -i",
        "mpirun -H localhost:2 python train.py",
        "apptainer exec --nv image.sif torchrun train.py",
        "uv run --with torch python train.py",
    ],
)
def test_what_passes_variables_on_needs_no_word(command: str) -> None:
    assert why_unreached(command.split(), {}) == ""


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
        (
            "ray job submit --working-dir . -- python driver.py",
            "ray job submit ... -- hangbisect run -- COMMAND",
        ),
        ("python -I train.py", "python -I reads no variables"),
        ("torchrun --no-python python3 -uE train.py", "python3 -E reads no variables"),
        ("python -X dev -S train.py", "python -S runs no start-up files"),
        ("env -i PATH=/bin python train.py", "env -i takes variables away"),
        ("su - ada -c 'python train.py'", "su - takes variables away"),
        ("apptainer exec --cleanenv image.sif python train.py", "or leave out --cleanenv"),
        ("mpirun -n 4 --host n1,n2 python train.py", "variables that -x names"),
    ],
)
def test_what_does_not_is_told_with_the_next_step(command: str, said: str) -> None:
    assert said in why_unreached(command.split(), {})


@pytest.mark.parametrize(
    ("command", "is_told"),
    [
        (["env", "PYTHONPATH=src", "python", "train.py"], True),
        (["sh", "-c", "cd src; PYTHONPATH=. python train.py"], True),
        (["sh", "-c", "PYTHONPATH=src:$PYTHONPATH python train.py"], False),
        (["python", "-c", "import os; print('PYTHONPATH=')"], False),
        (["python", "train.py", "PYTHONPATH=src"], False),
    ],
)
def test_pythonpath_that_is_set_anew_takes_the_watch_away(
    command: list[str], is_told: bool
) -> None:
    assert ("PYTHONPATH is set anew" in why_unreached(command, {})) == is_told


def test_what_sbatch_was_told_goes_for_its_sruns_as_well() -> None:
    environ = {"SLURM_EXPORT_ENV": "NONE"}
    assert "Use srun --export=ALL" in why_unreached(["srun", "python", "train.py"], environ)
    assert why_unreached(["srun", "--export=ALL", "python", "train.py"], environ) == ""


@given(st.lists(st.text(max_size=12), max_size=8))
def test_any_command_may_be_asked_about(command: list[str]) -> None:
    assert isinstance(why_unreached(command), str)


@pytest.mark.parametrize("named", ["python", "torchrun"])
def test_a_python_that_is_too_old_is_told_by_its_file(named: str, tmp_path: Path) -> None:
    old = tmp_path / "python3.8"
    if named == "python":
        (tmp_path / named).symlink_to(old)
    else:
        (tmp_path / named).write_text(f"#!{old} -u\n")
    for file in (old, tmp_path / named):
        file.touch()
        file.chmod(0o755)
    said = why_unreached([named, "train.py"], {"PATH": str(tmp_path)})
    assert f"{named} is Python 3.8, steps are told from Python 3.9 on" in said
    old.rename(tmp_path / "python3.10")
    (tmp_path / "python").unlink(missing_ok=True)
    (tmp_path / "python").symlink_to("python3.10")
    assert why_unreached(["python", "train.py"], {"PATH": str(tmp_path)}) == ""
