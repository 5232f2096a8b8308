"""For whose methods of Ray's actors a line waits, as the source says."""

from __future__ import annotations

import textwrap

import pytest
from hangbisect.evidence.asked_actors import find_asked_methods

SOURCE = textwrap.dedent(
    """
    import ray

    @ray.remote
    class Buffer:
        def add(self, rows): ...
        def size(self):
            return int(ray.get(ray.get_actor("buffer").size.remote()))

    @ray.remote
    class Player:
        def step(self): ...

    class Other:
        def step(self): ...

    @ray.remote
    def tokenize(text): ...

    def run(buffer, players):
        ray.get(buffer.add.remote([1]))
        asked = [one.step.options(name="x").remote() for one in players]
        for number, one in enumerate(asked):
            print(ray.get(one))
        waits = []
        for one in players:
            waits.append(buffer.add.remote([2]))
        ray.get(waits)
        ray.get(run_alone.remote())
        ray.get(tokenize.remote("once"))
        ray.get(Buffer.remote())
        ray.get(unknown)
    """
)


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ('"buffer").size', ("Buffer.size",)),
        ("ray.get(buffer.add", ("Buffer.add",)),
        ("print(ray.get(one))", ("step",)),  # two classes have it
        ("ray.get(waits)", ("Buffer.add",)),
        ("run_alone", ()),  # a task of another file: no function of this one
        ('tokenize.remote("once', ("tokenize",)),
        ("Buffer.remote", ()),  # an actor that is made
        ("unknown", ()),
    ],
)
def test_the_methods_for_whose_answers_a_line_waits(text: str, asked: tuple[str, ...]) -> None:
    line = next(n for n, one in enumerate(SOURCE.splitlines(), 1) if text in one)
    assert find_asked_methods(SOURCE, line) == asked


@pytest.mark.parametrize("source", ["", "def (", "x = 1"])
def test_what_tells_nothing_raises_nothing(source: str) -> None:
    assert find_asked_methods(source, 1) == ()
