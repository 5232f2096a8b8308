"""Flags of a generation config that are set and not used."""

from __future__ import annotations

from typing import Any

import pytest
from hangbisect.pipelines.generation_plan import find_ignored_flags


@pytest.fixture(scope="module")
def transformers() -> Any:
    """Not imported when this file is read: each worker reads it, and one has these tests."""
    return pytest.importorskip("transformers")


@pytest.mark.parametrize(
    ("flags", "sampling", "ignored"),
    [
        ({"temperature": 0.6, "top_p": 0.9}, {}, ["temperature", "top_p"]),
        ({"temperature": 0.6, "do_sample": True}, {"do_sample": False}, ["temperature"]),
        ({"temperature": 0.6}, {"do_sample": True}, []),
        ({"max_new_tokens": 7}, {}, []),
    ],
)
def test_what_sampling_alone_would_use_is_ignored_without_it(
    flags: dict[str, Any], sampling: dict[str, bool], ignored: list[str], transformers: Any
) -> None:
    config = transformers.GenerationConfig(**flags)
    before = config.to_dict()
    assert sorted(find_ignored_flags(config, sampling)) == ignored
    assert config.to_dict() == before
