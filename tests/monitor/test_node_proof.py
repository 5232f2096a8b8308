"""What a node proves in each try, and who may be a node of the job though it proves nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hangbisect.base.variables import TOKEN_VARIABLE
from hangbisect.link.channel import Address
from hangbisect.link.messages import Join
from hangbisect.monitor.lead_address import TOKEN_FILE
from hangbisect.monitor.node_proof import NodeProof, why_no_node


class Elsewhere:
    """The lead is on another machine."""

    def list_places(self) -> Sequence[Address]:
        return [("192.0.2.1", 29508)]

    async def list_addresses(self) -> Sequence[Address]:
        return [("192.0.2.1", 29508)]


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)


def leave(folder: Path, token: str) -> None:
    path = folder / TOKEN_FILE
    path.touch(0o600)
    path.write_text(json.dumps({"token": token}))


def choose(proof: NodeProof, was_refused: bool = False) -> bytes:
    asyncio.run(proof.choose("job", was_refused))
    return proof.token


def test_the_token_of_the_environment_counts_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave(tmp_path, "left")
    monkeypatch.setenv(TOKEN_VARIABLE, "given")
    proof = NodeProof(tmp_path, Elsewhere())
    assert [choose(proof, was_refused=True) for _ in range(3)] == [b"given"] * 3


def test_a_token_that_was_left_is_read_anew_and_does_without_once_it_was_refused(
    tmp_path: Path,
) -> None:
    proof = NodeProof(tmp_path, Elsewhere())
    assert choose(proof) == b""
    leave(tmp_path, "of a run before")
    assert choose(proof) == b"of a run before"
    refused = [choose(proof, was_refused=True) for _ in range(3)]
    assert refused == [b"", b"of a run before", b""]


def test_one_that_comes_later_is_tried_a_few_times(tmp_path: Path) -> None:
    proof = NodeProof(tmp_path, Elsewhere())
    assert asyncio.run(proof.find_later("job")) == b""
    leave(tmp_path, "old")
    assert [asyncio.run(proof.find_later("job")) for _ in range(4)] == [b"old"] * 3 + [b""]
    leave(tmp_path, "new")
    assert asyncio.run(proof.find_later("job")) == b"new"


@pytest.mark.parametrize(
    ("ranks", "world", "why_not"),
    [
        ((2, 3), 4, ""),
        ((2, 3), 8, "it is of a job of 8 ranks, and this one has 4"),
        ((), 4, "it speaks of no rank of this job"),
        ((2, 4), 4, "it speaks of no rank of this job"),
        ((1, 2), 4, "it speaks of ranks that are here"),
    ],
)
def test_who_proves_nothing_can_be_no_node_with_ranks_that_are_here(
    ranks: tuple[int, ...], world: int, why_not: str
) -> None:
    assert why_no_node(Join("1", "n2", "one", ranks, world), 4, (0, 1)) == why_not
