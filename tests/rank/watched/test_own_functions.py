"""The functions that --step names."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from hangbisect.base.errors import UsageError
from hangbisect.rank.watched.known_calls import KnownCall
from hangbisect.rank.watched.user_functions import (
    check_step_functions,
    find_definition,
    parse_steps,
)

SOURCE = """
def build(): pass
class Net:
    def __init__(self): pass
    def load(self): pass
class Plain: pass
"""


@pytest.fixture
def module() -> Any:
    made = ModuleType("my.data")
    exec(SOURCE, vars(made))
    return made


def row(attribute: str) -> KnownCall:
    return parse_steps(f"my.data:{attribute}")[0]


def test_each_is_a_row() -> None:
    one, two = parse_steps("my.data:build, my.models:Net.load,nonsense")
    assert (one.call, one.module, one.attribute) == ("my.data.build", "my.data", "build")
    assert two.attribute == "Net.load"


def test_of_a_class_it_is_the_constructor(module: Any) -> None:
    assert find_definition(row("build"), module) == row("build")
    assert find_definition(row("Net.load"), module) == row("Net.load")
    found = find_definition(row("Net"), module)
    assert isinstance(found, KnownCall)
    assert (found.step, found.attribute) == ("Net", "Net.__init__")


def test_what_is_not_there_is_told_with_the_nearest_name(module: Any) -> None:
    said = find_definition(row("biuld"), module)
    assert said == "--step my.data:biuld: my.data has no 'biuld'; did you mean 'build'?"
    assert "Net has no 'save'" in str(find_definition(row("Net.save"), module))
    assert "no constructor of its own" in str(find_definition(row("Plain"), module))


@pytest.mark.parametrize(
    ("word", "command"),
    [
        ("__main__:build", "torchrun --nproc_per_node=2 train.py"),
        ("train:build", "torchrun --nproc_per_node=2 src/train.py --lr 1"),
        ("my.train:build", "torchrun -m my.train"),
    ],
)
def test_a_function_of_the_script_itself_is_refused_with_the_next_step(
    word: str, command: str
) -> None:
    with pytest.raises(UsageError, match="function of the script itself") as refused:
        check_step_functions([word], command.split())
    assert "with hangbisect.step('build'):" in refused.value.help


def test_a_function_of_another_module_is_not() -> None:
    check_step_functions(["my.data:build"], ["python", "-m", "torch.distributed.run", "train.py"])
