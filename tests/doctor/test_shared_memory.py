"""/dev/shm: where its size becomes a warning or a problem."""

from __future__ import annotations

import pytest
from hangbisect.doctor.shared_memory import Space, read_shm, shm
from hangbisect.doctor.sizes import GB, MB, size

from .made_up import levels, setting


@pytest.mark.parametrize(
    ("facts", "level"),
    [
        (None, "problem"),
        (Space(64 * MB, 64 * MB), "problem"),
        (Space(32 * GB, MB), "problem"),
        (Space(512 * MB, 500 * MB), "warning"),
        (Space(32 * GB, 200 * MB), "warning"),
        (Space(32 * GB, 30 * GB), "ok"),
    ],
)
def test_shared_memory(facts: Space | None, level: str) -> None:
    assert levels(shm, facts) == [level]


@pytest.mark.parametrize(
    ("number", "text"),
    [(64 * MB, "64 MB"), (3 * GB // 2, "1.5 GB"), (24 * GB, "24 GB"), (5000, "4 KB")],
)
def test_sizes_in_words(number: int, text: str) -> None:
    assert size(number) == text


def test_it_is_read() -> None:
    space = read_shm(setting())
    assert space is None or space.free <= space.total
