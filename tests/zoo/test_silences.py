"""Which jobs of benchmarks/silences.py went wrong."""

from __future__ import annotations

import pytest
import silences


def silence(kind: str, seconds: float, *told: str, status: int = 0) -> silences.Silence:
    return silences.Silence(kind, seconds, told, status, stall=20.0)


def test_what_is_called_a_hang_or_was_ended_went_wrong() -> None:
    assert not silence("recv", 60.0, "hang").well
    assert not silence("recv", 60.0, "silent", status=1).well
    assert silence("recv", 60.0, "silent", "ok").well


@pytest.mark.parametrize("kind", silences.ONLY_SILENT)
def test_where_silence_is_all_that_can_be_known_it_is_to_be_said(kind: str) -> None:
    assert not silence(kind, 60.0).well
    assert not silence(kind, 60.0, "ok").well
    assert silence(kind, 60.0, "silent").well
    assert silence(kind, 21.0).well  # it may be over before the looks are


def test_of_others_it_need_not_be() -> None:
    assert {*silences.ONLY_SILENT} < {*silences.KINDS}
    assert silence("sleep", 60.0).well
    assert silence("polled file", 60.0).well
