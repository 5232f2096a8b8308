"""What nodes without a lead leave for each other in a run folder that they share."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from hangbisect.link.messages import NodeWord
from hangbisect.monitor.lead_address import TOKEN_FILE, WaitingNodes, read_token

PLACES = [("127.0.0.1", 29408)]


def waiting(folder: Path, rank: int) -> WaitingNodes:
    return WaitingNodes(folder, NodeWord(str(rank), f"n{rank}", (rank,), "", 0))


def exchange(nodes: WaitingNodes, job: str = "job", needs_token: bool = True) -> list[str]:
    """Return the nodes that were found."""
    asyncio.run(nodes.exchange(job, PLACES, needs_token))
    return sorted(word.node for word in nodes.found)


def test_nodes_of_one_job_find_each_other_and_one_token(tmp_path: Path) -> None:
    one, other = waiting(tmp_path, 1), waiting(tmp_path, 2)
    assert exchange(one) == ["1"]
    token = read_token(tmp_path / TOKEN_FILE)
    assert exchange(other) == ["1", "2"]
    assert exchange(one) == ["1", "2"]
    assert exchange(waiting(tmp_path, 3), job="another") == ["3"]
    assert read_token(tmp_path / TOKEN_FILE) == token != ""
    assert {word.address for word in one.found} == {"127.0.0.1"}
    assert all(path.stat().st_mode & 0o077 == 0 for path in tmp_path.iterdir())


def test_what_a_node_of_a_run_before_left_is_passed_over(tmp_path: Path) -> None:
    exchange(waiting(tmp_path, 1), needs_token=False)
    assert not (tmp_path / TOKEN_FILE).exists()
    (left,) = tmp_path.iterdir()
    os.utime(left, (time.time() - 3600, time.time() - 3600))
    assert exchange(waiting(tmp_path, 2)) == ["2"]


def test_what_is_no_word_of_a_node_is_passed_over(tmp_path: Path) -> None:
    for name, text in {"a": "{", "b": "[]", "c": '{"node": 5}', "d": ""}.items():
        path = tmp_path / f"waiting-job-{name}.json"
        path.write_text(text)
        path.chmod(0o600)
    stranger = tmp_path / "waiting-job-e.json"
    exchange(waiting(tmp_path, 1))
    next(tmp_path.glob("waiting-job-????????????????.json")).rename(stranger)
    stranger.chmod(0o644)  # others can write what others can read, for all we know
    assert exchange(waiting(tmp_path, 2)) == ["2"]


def test_nothing_of_it_stays_and_a_folder_that_cannot_be_is_nobodys_trouble(tmp_path: Path) -> None:
    one = waiting(tmp_path, 1)
    exchange(one, needs_token=False)
    asyncio.run(one.end())
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").write_text("")
    assert exchange(waiting(tmp_path / "file" / "run", 1)) == []
