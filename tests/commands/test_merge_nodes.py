"""Run folders of several nodes without a disk that they share: `hangbisect merge DIR...`."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hangbisect.base.errors import UsageError
from hangbisect.base.json_codec import to_json
from hangbisect.base.node_record import NodeClock, make_node_record
from hangbisect.base.rank_facts import MachineFacts, RankFacts
from hangbisect.commands.results import merge
from hangbisect.diagnosis.verdict import judge_job_with_graph
from hangbisect.report.run_reader.run import read_run
from hangbisect.report.run_reader.run_files import make_evidence

from ..diagnosis.made_up import ALL_REDUCE, SLEEP, job, rank


def write_node(folder: Path, host: str, ranks: Sequence[RankFacts]) -> str:
    """Write what a node's monitor writes of a hang; return the folder's name."""
    ranks = [replace(one, host=host) for one in ranks]
    told = job("still", 2, local_ranks=tuple(one.rank for one in ranks), pipeline="", still=22.0)
    verdict, graph = judge_job_with_graph(told, ranks)
    record = make_node_record(host, told, ranks, NodeClock(told.now, 1_800_000_000.0))
    folder.mkdir(parents=True)
    files = {
        "verdict.json": replace(verdict, outcome="silent"),
        "evidence.json": make_evidence(ranks, graph, MachineFacts()),
        "node.json": record,
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(to_json(content)))
    return str(folder)


@pytest.fixture
def nodes(tmp_path: Path) -> list[str]:
    """Rank 0 waits in a collective on n1, rank 1 sleeps on n2."""
    return [
        write_node(tmp_path / "a", "n1", [rank(0, ALL_REDUCE, ALL_REDUCE)]),
        write_node(tmp_path / "b", "n2", [rank(1, SLEEP, SLEEP)]),
    ]


def test_folders_of_nodes_give_one_verdict(
    nodes: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert merge(nodes) == 4
    said = capsys.readouterr().out
    assert said.startswith("SILENT")
    assert "rank 1 n2 pid" in said
    assert re.search(r"waiting +rank 0", said), said


def test_as_json_it_is_the_verdict(nodes: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert merge(["--json", *nodes]) == 4
    found = json.loads(capsys.readouterr().out)
    assert found["ranks"]["culprit"] == [1]
    assert found["seen_ranks"] == [0, 1]


def test_they_are_put_into_one_run_folder(
    nodes: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = tmp_path / "whole"
    assert merge([*nodes, "--output", str(whole)]) == 4
    assert f"hangbisect report {whole}" in capsys.readouterr().out
    found = read_run(whole)
    assert found.verdict is not None
    assert found.verdict.ranks.culprit == (1,)
    assert sorted(p.name for p in whole.iterdir()) == ["node-0", "node-1"]


def test_a_folder_that_is_there_is_not_written_into(nodes: list[str], tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    (tmp_path / "whole" / "mine").write_text("x")
    with pytest.raises(UsageError, match="is not empty"):
        merge([*nodes, "--output", str(tmp_path / "whole")])


def test_the_folder_of_one_node_alone_is_what_it_said(
    nodes: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """That of rank 0: it names nobody, and says which ranks it has not seen."""
    assert merge(nodes[:1]) == 4
    assert "none that can be named" in capsys.readouterr().out


def test_folders_and_dumps_do_not_go_together(nodes: list[str], tmp_path: Path) -> None:
    (tmp_path / "rank0.txt").write_text("Process 1: python\n")
    with pytest.raises(UsageError, match="folders or files"):
        merge([nodes[0], str(tmp_path / "rank0.txt")])


def test_an_older_runs_folders_are_taken_one_by_one(
    nodes: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Without node.json the one with a culprit is shown, as before."""
    for folder in nodes:
        (Path(folder) / "node.json").unlink()
    assert merge(nodes) == 4
    assert "rank 1 n2 pid" in capsys.readouterr().out


@pytest.mark.parametrize("content", ["", "[]", '{"schema": 1}', '{"host": 7}', "\x00"])
def test_a_record_that_is_none_is_said_and_nothing_is_lost(
    nodes: list[str], content: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (Path(nodes[0]) / "node.json").write_text(content)
    assert merge(nodes) == 4
    printed = capsys.readouterr()
    assert "rank 1 n2 pid" in printed.out
    assert "node.json" in printed.err
