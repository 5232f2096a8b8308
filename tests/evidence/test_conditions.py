"""Which lines of a source only some ranks come by."""

from __future__ import annotations

from pathlib import Path

import pytest
from hangbisect.base.rank_facts import Collective, CollectiveLog
from hangbisect.evidence.source_code import add_conditions, find_condition
from hypothesis import given, settings
from hypothesis import strategies as st

# The line in question ends in "# here".
ONLY_SOME = [
    ("if rank == 0:\n    barrier()  # here", "if rank == 0"),
    ("main = int(os.environ['RANK']) == 0\nif main:\n    barrier()  # here", "if main"),
    ("a = get_rank()\nb = a == 0\nif b: barrier()  # here", "if b"),
    ("if rank == 0:\n    x()\nelse:\n    barrier()  # here", "else of if rank == 0"),
    (
        "class C:\n  def f(self, trainer):\n    if trainer.is_global_zero:\n"
        "      with x:\n        y(\n          1,  # here\n        )",
        "if trainer.is_global_zero",
    ),
    (
        "def f():\n    if dist.get_rank() != 0:\n        return\n    barrier()  # here",
        "not left before by: if dist.get_rank() != 0",
    ),
    ("@rank_zero_only\ndef f():\n    barrier()  # here", "@rank_zero_only"),
    (
        "@accelerator.on_main_process\ndef f():\n    barrier()  # here",
        "@accelerator.on_main_process",
    ),
    (
        "while not accelerator.is_main_process:\n    barrier()  # here",
        "if not accelerator.is_main_process",
    ),
    (
        "self.gpu_id = int(os.environ['LOCAL_RANK'])\nif epoch % 2 == 0 and self.gpu_id == 0:\n"
        "    barrier()  # here",
        "if epoch % 2 == 0 and self.gpu_id == 0",
    ),
    ("if not rank:\n    barrier()  # here", "if not rank"),
    ("if rank % 8 == 0:\n    barrier()  # here", "if rank % 8 == 0"),
    (
        "if os.environ.get('RANK', '0') == '0':\n    barrier()  # here",
        "if os.environ.get('RANK', '0') == '0'",
    ),
    (
        "me = rank_number(given)\nif me == 1 and step == 1:\n    barrier()  # here",
        "if me == 1 and step == 1",
    ),
    ("shard = [] if get_rank() == 2 else [1.0]\nif shard:\n    barrier()  # here", "if shard"),
    ("if dist.get_rank(group) == 0:\n    barrier()  # here", "if dist.get_rank(group) == 0"),
]
ALL = [
    # Whether there are ranks at all is the same on every rank.
    "ddp = int(os.environ.get('RANK', -1)) != -1\nif ddp:\n    barrier()  # here",
    "if 'RANK' in os.environ:\n    barrier()  # here",
    "if rank is not None and rank >= 0:\n    barrier()  # here",
    # What is made of something that knows the rank need not differ itself (nanoGPT).
    "ddp = int(os.environ.get('RANK', -1)) != -1\nraw = model.module if ddp else model\n"
    "checkpoint = {'model': raw, 'rank': rank}\niter_num = checkpoint['iter_num']\n"
    "while True:\n    if iter_num == 0 and eval_only:\n        break\n    backward()  # here",
    "loader = make_loader(rank)\nif loader.is_full():\n    barrier()  # here",
    "steps = len(Sampler(data, rank=rank))\nif steps > 3:\n    barrier()  # here",
    "barrier()  # here",
    "if world_size > 1:\n    barrier()  # here",
    "for r in range(world):\n    if r == rank:\n        print()\n    barrier()  # here",
    "if step % 10 == 0:\n    barrier()  # here",
    "if rank == 0:\n    print()\nbarrier()  # here",
    "def f(rank):\n    barrier()  # here",
    "if rank == 0:\n    print()\nelse:\n    print()\nbarrier()  # here",
]


def line_of(source: str) -> int:
    return next(n for n, line in enumerate(source.splitlines(), 1) if line.endswith("# here"))


@pytest.mark.parametrize(("source", "condition"), ONLY_SOME)
def test_the_condition_is_told(source: str, condition: str) -> None:
    assert find_condition(source, line_of(source)) == condition


@pytest.mark.parametrize("source", ALL)
def test_where_all_come_by_there_is_none(source: str) -> None:
    assert find_condition(source, line_of(source)) == ""


@settings(deadline=None)
@given(st.text(max_size=200), st.integers(-5, 50))
def test_what_is_no_python_has_no_conditions(source: str, line: int) -> None:
    assert isinstance(find_condition(source, line), str)


def test_a_log_gets_the_conditions_of_its_calls(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("if rank == 0:\n    barrier()\nbarrier()\n")
    operations = [
        Collective("0", "barrier", n, f"train.py:{line} <module>", file=str(file))
        for n, line in enumerate((2, 3), 1)
    ]
    gone = Collective("0", "barrier", 3, "x.py:1 f", file=str(tmp_path / "x.py"))
    log = add_conditions(CollectiveLog("ring", (*operations, gone)))
    assert [o.condition for o in log.operations] == ["if rank == 0", "", ""]
