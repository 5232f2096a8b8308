"""/dev/shm: where its size becomes a warning or a problem."""

from __future__ import annotations

import pytest
from hangbisect.base.words import GIB, MIB
from hangbisect.doctor.limits import Space, read_shm, shm

from .made_up import levels, setting


@pytest.mark.parametrize(
    ("facts", "level"),
    [
        (None, "problem"),
        (Space(64 * MIB, 64 * MIB), "problem"),
        (Space(32 * GIB, MIB), "problem"),
        (Space(512 * MIB, 500 * MIB), "warning"),
        (Space(32 * GIB, 200 * MIB), "warning"),
        (Space(32 * GIB, 30 * GIB), "ok"),
    ],
)
def test_shared_memory(facts: Space | None, level: str) -> None:
    assert levels(shm, facts) == [level]


def test_it_is_read() -> None:
    space = read_shm(setting())
    assert space is None or space.free <= space.total
