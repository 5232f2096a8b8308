"""Nodes whose programs start their ranks themselves: nobody says how many each has."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hangbisect.base.rank_state import NodeRanks
from hangbisect.base.variables import TOKEN_VARIABLE
from hangbisect.monitor import watch

from .made_up import TABLE, hello, say


def job(world: int = 4, ranks: int = 2, **fields: Any) -> Any:
    """What is known of the job once its ranks have come, and all but the first know the world."""
    members = NodeRanks(TABLE, runs_script=True)
    environment = {"MASTER_ADDR": fields.pop("master", "n1")}
    for rank in range(ranks):
        size = world if rank else 1
        place: dict[str, Any] = {"local_world_size": 1, "counted": size == 1}
        place["environment"] = environment
        say(members, rank, hello(rank, size, **place))
    settings = {"nodes": "auto", "run_dir": "", **fields.pop("settings", {})}
    made = {"place": {"launcher": None}, "runs_script": True, "members": members}
    return SimpleNamespace(**(made | fields), settings=settings)


@pytest.mark.parametrize(
    ("there", "are_others"),
    [
        (job(), True),
        (job(world=2), False),  # all ranks of the world are here
        (job(master="127.0.0.1"), False),
        (job(master=""), False),
        (job(settings={"nodes": "off"}), False),
        (job(ranks=0), False),
        (job(runs_script=False), False),
    ],
)
def test_a_part_of_a_larger_world_looks_for_the_others(
    there: Any, are_others: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "0" * 32)
    assert watch._has_other_nodes(there) is are_others


def test_without_a_token_they_are_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    assert not watch._has_other_nodes(job())
    assert watch._has_other_nodes(job(settings={"run_dir": "runs/x"}))
