"""A dataclass that is made when it is first used is the standard library's in all else."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
import threading
from dataclasses import FrozenInstanceError, field, fields, is_dataclass, replace
from typing import Any

import hangbisect
import pytest
from hangbisect.base.lazy_dataclass import dataclass

from .programs import run_program

# What only a job's own environment has, or what is no module to be imported.
LEFT_OUT = ("hangbisect.zoo", "hangbisect.pipelines", "hangbisect.start_up", "hangbisect.__main__")


def test_every_definition_can_be_made() -> None:
    found = 0
    for module in pkgutil.walk_packages(hangbisect.__path__, "hangbisect."):
        if module.name.startswith(LEFT_OUT):
            continue
        for made in vars(importlib.import_module(module.name)).values():
            if isinstance(made, type) and made.__module__ == module.name and is_dataclass(made):
                fields(made)
                assert made.__init__.__qualname__.endswith("__init__")
                found += 1
    assert found > 200


def test_it_is_as_the_standard_library_makes_it() -> None:
    def declare(made_by: Any) -> Any:
        @made_by(frozen=True, order=True)
        class Point:
            x: int
            y: int = 2
            names: tuple[str, ...] = field(default_factory=tuple, compare=False)

        return Point

    ours, theirs = declare(dataclass), declare(dataclasses.dataclass)
    for kind in (ours, theirs):
        point = kind(1, names=("a",))
        assert (point.x, point.y, point.names) == (1, 2, ("a",))
        assert point == kind(1) < kind(3)
        assert hash(point) == hash(kind(1))
        assert replace(point, y=5).y == 5
        assert repr(point).endswith("Point(x=1, y=2, names=('a',))")
        with pytest.raises(FrozenInstanceError):
            point.x = 3
        with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
            kind()
    assert {*vars(ours)} == {*vars(theirs)}


def test_a_subclass_has_the_fields_of_what_was_not_made_yet() -> None:
    @dataclass
    class Base:
        a: int

    @dataclass
    class Child(Base):
        b: int = 0

    class Plain(Child):
        pass

    assert [one.name for one in fields(Plain)] == ["a", "b"]
    assert Plain(1) == Plain(1, 0)
    assert Base(3).a == 3


def test_without_arguments_and_asked_for_by_its_class() -> None:
    @dataclass
    class One:
        a: int = 1

    assert is_dataclass(One)
    assert One() == One(1)


def test_a_mistake_is_told_when_it_is_first_used() -> None:
    @dataclass
    class Wrong:
        a: list[int] = []  # noqa: RUF012

    with pytest.raises(ValueError, match="mutable default"):
        Wrong()


def test_many_threads_may_be_the_first() -> None:
    for _ in range(50):
        made: list[object] = []

        @dataclass(frozen=True)
        class Shared:
            a: int
            b: tuple[int, ...] = field(default_factory=tuple)

        start = threading.Barrier(8)

        def use() -> None:
            start.wait(60)  # noqa: B023 - its threads end in this round
            made.append(Shared(1))  # noqa: B023

        threads = [threading.Thread(target=use) for _ in range(8)]
        for one in threads:
            one.start()
        for one in threads:
            one.join(60)
        assert made == [Shared(1)] * 8


def test_the_front_needs_none_before_its_command_starts() -> None:
    program = (
        "import sys\n"
        "from hangbisect import cli\n"
        "from hangbisect.front import command\n"
        "def start_command(*_):\n"
        "    print('dataclasses' in sys.modules, flush=True)\n"
        "    raise SystemExit\n"
        "command.start_command = start_command\n"
        "cli.main(['run', '--', 'true'])\n"
    )
    ran = run_program(program)
    assert ran.stdout.strip() == "False"
