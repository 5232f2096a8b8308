"""Classes that --capture names: what is made of them listens, and is made as without it."""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import Any

import pytest
import torch
from hangbisect.base.errors import UsageError
from hangbisect.captures.forward_hooks import Listener
from hangbisect.rank.watched.user_functions import (
    capture_class,
    check_captured_classes,
    parse_classes,
)


class Own(torch.nn.Module):
    """Has a constructor."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(width, 1)


class Derived(Own):
    """Has none of its own, and a class below."""

    class Inner(torch.nn.Module):
        """Has none either."""


class Further(Derived):
    """Goes on after the constructor of its base."""

    def __init__(self) -> None:
        super().__init__(2)
        self.more = torch.nn.Linear(1, 1)


@pytest.fixture
def module() -> ModuleType:
    """The module of the classes above."""
    found = inspect.getmodule(Own)
    assert found is not None
    return found


def listens(made: Any) -> bool:
    """Return whether a module does."""
    return any(isinstance(one, Listener) for one in made._forward_pre_hooks.values())


def test_words_become_modules_and_classes() -> None:
    assert parse_classes(" a.b:Net, c:D.E,,x,:y,z:") == [("a.b", "Net"), ("c", "D.E")]


@pytest.mark.parametrize(
    ("name", "listening"),
    [
        ("Own", {"Own", "Derived", "Further"}),
        ("Derived", {"Derived", "Further"}),
        ("Further", {"Further"}),
        ("Derived.Inner", {"Inner"}),
    ],
)
def test_what_is_made_of_the_class_and_those_below_it_listens(
    name: str, listening: set[str], module: ModuleType
) -> None:
    said: list[str] = []
    undo = capture_class(module, name, said.append)
    assert undo is not None
    try:
        made = [Own(2), Derived(2), Further(), Derived.Inner()]
        assert [*inspect.signature(Own).parameters] == ["width"]
    finally:
        undo()
    assert {type(one).__name__ for one in made if listens(one)} == listening
    assert said == [f"--capture {module.__name__}:{name}: it listens to `hangbisect capture on`"]
    assert not listens(Further())


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("Owm", "there is no 'Owm'; did you mean 'Own'?"),
        ("Own.forwards", "there is no 'forwards'"),
        ("listens", "it is no class of torch.nn.Module's"),
    ],
)
def test_what_is_no_class_of_modules_is_said(name: str, why: str, module: ModuleType) -> None:
    said: list[str] = []
    assert capture_class(module, name, said.append) is None
    assert said == [f"--capture {module.__name__}:{name}: {why}"]


def test_a_class_of_the_script_itself_is_refused_with_the_line_to_write() -> None:
    check_captured_classes(["net:Net"], ["python", "train.py"])
    with pytest.raises(UsageError, match="a class of the script itself") as refused:
        check_captured_classes(["train:Net"], ["python", "train.py"])
    assert "hangbisect.capture(module)" in refused.value.help
