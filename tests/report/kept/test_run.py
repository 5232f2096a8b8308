"""A run folder read back, whoever wrote it."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from hangbisect.base.errors import UsageError
from hangbisect.base.events import Said
from hangbisect.base.json_codec import to_json
from hangbisect.report.run_reader.run import MOST_BYTES, RecordedRun, read_nodes, read_run
from hangbisect.search.cells import RecordedMatrix
from hangbisect.search.isolation import Isolation
from hypothesis import given, settings
from hypothesis import strategies as st

from ...examples import examples
from .made_up import VERDICT, event, hello, write_run

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def test_what_a_run_wrote_is_there(tmp_path: Path) -> None:
    environment = {"versions": {"torch": "2.4"}, "host": "n03", "ranks": {"0": {"RANK": "0"}}}
    write_run(tmp_path, events=[hello(1.0, 0)], environment=environment, evidence={"ranks": []})
    (tmp_path / "stacks" / "rank-0.txt").write_text("f (x.py:1)\n")
    (tmp_path / "stacks" / "merged.txt").write_text("[0] f\n")
    found = read_run(tmp_path)
    assert to_json(found.verdict) == VERDICT
    assert (found.kind, found.outcome, found.world_size, found.missing) == ("run", "hang", 2, ())
    assert [one.kind for one in found.events] == ["hello"]
    assert found.stacks == {"rank-0.txt": "f (x.py:1)\n"}
    assert found.merged == "[0] f\n"
    assert found.environment is not None
    assert found.environment.ranks == {"0": {"RANK": "0"}}
    assert found.evidence == {"ranks": []}


def test_a_folder_without_a_run_is_said_with_what_it_should_be(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="without a verdict"):
        read_run(tmp_path)
    with pytest.raises(UsageError, match="is no folder"):
        read_run(tmp_path / "nowhere")
    with pytest.raises(UsageError):
        read_run("nul\0byte")


def test_of_several_folders_one_without_anything_costs_the_others_nothing(tmp_path: Path) -> None:
    """A node that lost its power, or whose launcher has not been judged, has left nothing."""
    empty = tmp_path / "n03"
    empty.mkdir()
    found = read_nodes([empty, write_run(tmp_path / "n01")])
    assert found.outcome == "hang"
    assert "n03 is a folder without a verdict" in found.missing[-1]
    with pytest.raises(UsageError, match="without a verdict"):
        read_nodes([empty, empty])


def test_a_verdict_alone_is_a_run(tmp_path: Path) -> None:
    found = read_run(write_run(tmp_path))
    assert found.outcome == "hang"
    assert (found.events, found.evidence, found.environment, found.merged) == ((), None, None, "")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is no JSON"),
        (b"{", "is no JSON"),
        (b"[" * 100_000, "is no JSON: it is nested too deep"),
        (b"\xff\xfe{}", "is no JSON"),
        (b"[]", "holds no object"),
        (b"{}", "has schema None"),
        (b'{"schema": 3}', "has schema 3"),
        (b'{"schema": 1, "outcome": ["hang"]}', "outcome is"),
        (b"1" * 10_000, "is no JSON"),
    ],
)
def test_a_verdict_that_is_none_is_said(tmp_path: Path, content: bytes, sentence: str) -> None:
    write_run(tmp_path, None, [hello(1.0, 0)])
    (tmp_path / "verdict.json").write_bytes(content)
    found = read_run(tmp_path)
    assert found.verdict is None
    assert any(sentence in told for told in found.missing), found.missing


def test_a_field_of_another_kind_is_left_out_and_named(tmp_path: Path) -> None:
    ranks = {**VERDICT["ranks"], "culprit": [1, "x", True, 1e300]}
    wrong = {**VERDICT, "ranks": ranks, "notes": 7, "call": ["a"], "world_size": "2"}
    found = read_run(write_run(tmp_path, wrong))
    assert found.verdict
    assert found.verdict.ranks.culprit == (1,)
    assert (found.verdict.notes, found.verdict.call, found.world_size) == ((), None, 0)
    assert found.missing == (
        "verdict.json: world_size: a whole number was expected, found '2'; ranks.culprit[1]: a "
        "rank was expected, found 'x'; ranks.culprit[2]: a rank was expected, found true; "
        "and 3 more",
    )


def test_half_a_character_and_a_number_that_is_none_are_replaced(tmp_path: Path) -> None:
    write_run(tmp_path, {**VERDICT, "call": "\ud800x", "notes": ["a"]})
    text = (tmp_path / "verdict.json").read_text()
    (tmp_path / "verdict.json").write_text(text.replace("31.2", "1e999").replace("8.0", "NaN"))
    found = read_run(tmp_path)
    assert found.verdict
    assert found.verdict.call == "?x"
    assert (found.verdict.seconds.total, found.verdict.seconds.still) == (0.0, None)


@given(JSON)
@settings(max_examples=examples(30))
def test_no_verdict_breaks_the_reader(tmp_path_factory: Any, value: Any) -> None:
    folder = tmp_path_factory.mktemp("run", numbered=True)
    odd = {**VERDICT, **dict.fromkeys(("where", "ranks", "seconds", "chain", "try"), value)}
    found = read_run(write_run(folder, odd, [hello(1.0, 0)], environment=value, evidence=value))
    assert found.verdict
    assert set(to_json(found.verdict)) == set(VERDICT)
    assert isinstance(found.verdict.ranks.culprit, tuple)


def test_events_are_in_order_and_what_is_none_is_counted(tmp_path: Path) -> None:
    write_run(tmp_path, events=[event(3.0, "said", text="b"), event(2.0, "said", text="a")])
    with open(tmp_path / "events.jsonl", "ab") as file:
        file.write(b'[]\n{"t": 1}\n{"t": "x"}\n{"t": "x", "at": true}\n\xff\n')
        file.write(b'{"t": "x", "at": 1, "rank": "0"}\n{"t": "cut sho')
    found = read_run(tmp_path)
    assert [one.text for one in found.events if isinstance(one, Said)] == ["a", "b"]
    assert found.missing == ("events.jsonl: 6 of 9 lines are no events",)


def test_of_a_huge_log_of_events_the_middle_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hangbisect.report.run_reader.run_files.FIRST", 1000)
    monkeypatch.setattr("hangbisect.report.run_reader.run_files.LAST", 500)
    write_run(tmp_path, events=[event(float(n), "said", text=str(n)) for n in range(100)])
    found = read_run(tmp_path)
    texts = [int(one.text) for one in found.events if isinstance(one, Said)]
    assert texts[0] == 0
    assert texts[-1] == 99
    assert 15 < len(texts) < 30
    assert "what is in the middle was left out" in found.missing[0]


def test_a_file_that_is_too_large_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MOST_BYTES, "evidence.json", 100)
    found = read_run(write_run(tmp_path, evidence={"ranks": ["x" * 200]}))
    assert found.evidence is None
    assert "evidence.json was not read" in found.missing[0]


def test_links_and_what_is_no_file_are_not_followed_nor_waited_for(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "rank-1.txt").write_text("secret")
    folder = write_run(tmp_path / "run")
    (folder / "evidence.json").symlink_to(secret / "rank-1.txt")
    (folder / "stacks" / "rank-0.txt").symlink_to(secret / "rank-1.txt")
    os.mkfifo(folder / "environment.json")
    (folder / "events.jsonl").mkdir()
    (folder / "node-1").symlink_to(secret)
    began = time.monotonic()
    found = read_run(folder)
    assert time.monotonic() - began < 20.0  # a FIFO without a writer blocks for ever
    assert (found.evidence, found.stacks, found.nodes, found.events) == (None, {}, (), ())
    assert "secret" not in repr(found.stacks)
    told = " ".join(found.missing)
    assert "evidence.json could not be read: a link" in told
    assert "environment.json could not be read: it is no regular file" in told


def test_a_folder_of_stacks_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    (folder / "stacks").rmdir()
    (folder / "stacks").symlink_to(tmp_path)
    assert read_run(folder).stacks == {}


def test_stacks_that_are_too_many_or_too_long_are_cut_and_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MOST_BYTES, "stack", 100)
    monkeypatch.setitem(MOST_BYTES, "stacks", 250)
    folder = write_run(tmp_path)
    for number in range(9):
        (folder / "stacks" / f"rank-{number}.txt").write_text("x" * 120)
    found = read_run(folder)
    assert [len(text) for text in found.stacks.values()] == [100, 100, 50]
    assert found.missing == (
        "stacks: 6 of 9 files were left out",
        "stacks: of 2 files the first 100 bytes were read",
    )


def test_texts_that_are_no_utf_8_are_read_all_the_same(tmp_path: Path) -> None:
    folder = write_run(tmp_path)
    (folder / "stacks" / "merged.txt").write_bytes(b"\xff\x1b[31mf\x00")
    name = os.path.join(os.fsencode(folder), b"stacks", b"rank-0-\xff.txt")
    with open(name, "wb") as file:
        file.write(b"x")
    found = read_run(folder)
    assert found.merged == "\ufffd\x1b[31mf\x00"
    assert [*found.stacks.values()] == ["x"]
    assert all(name.encode() for name in found.stacks)


def test_of_nodes_the_one_with_the_worst_verdict_comes_first(tmp_path: Path) -> None:
    write_run(tmp_path, {**VERDICT, "outcome": "interrupted"}, [hello(1.0, 0)])
    write_run(tmp_path / "node-1", {**VERDICT, "call": "of node 1"}, [hello(1.0, 1)])
    found = read_run(tmp_path)
    assert found.verdict
    assert found.verdict.call == "of node 1"
    assert [node.events[0].rank for node in found.everywhere] == [1, 0]


def test_a_node_without_its_first_folder_is_a_run(tmp_path: Path) -> None:
    write_run(tmp_path / "node-1", VERDICT, [hello(1.0, 1)])
    found = read_run(tmp_path)
    assert (found.outcome, found.folder) == ("hang", tmp_path)


def test_the_last_attempt_counts(tmp_path: Path) -> None:
    write_run(tmp_path, {**VERDICT, "call": "first"})
    write_run(tmp_path / "attempt-1", {**VERDICT, "outcome": "ok", "attempt": 1})
    write_run(tmp_path / "node-1" / "attempt-1", {**VERDICT, "call": "second", "attempt": 1})
    found = read_run(tmp_path)
    assert found.verdict
    assert (found.attempt, found.verdict.call, len(found.nodes)) == (1, "second", 1)
    assert found.missing == ("this is attempt 1; of earlier ones 1 folders were left out",)


def test_an_isolation_is_a_row_of_trials(tmp_path: Path) -> None:
    trial = {
        "number": 1,
        "setting": {"wandb": "offline"},
        "result": "hang",
        "seconds": 12.5,
        "run_dir": "/elsewhere/iso/trials/01",
        "why": "hang at checkpoint 9",
        "outcome": "hang",
        "command": ["train.py"],
        "environment": {},
    }
    odd = {**trial, "number": 2, "setting": {}, "run_dir": "../../etc/.."}
    whole = to_json(Isolation("not_isolated", ("train.py",), (), 25.0))
    found = read_run(write_run(tmp_path, None, isolation={**whole, "trials": [trial, odd, 7]}))
    first, second = found.trials
    assert (found.kind, first.name, first.link) == ("isolation", "wandb=offline", "trials/01")
    assert (first.where, first.seconds) == ("hang at checkpoint 9", 12.5)
    assert (second.name, second.link) == ("as you run it", "")
    assert found.answer is None
    assert found.missing == ("isolation.json: trials[2]: an object was expected, found 7",)


def test_a_matrix_is_a_row_of_cells_also_those_that_were_not_run(tmp_path: Path) -> None:
    cell = {
        "number": 1,
        "name": "offline",
        "setting": {},
        "result": "ok",
        "seconds": 3.0,
        "run_dir": "runs/m/01-offline",
        "where": "",
    }
    left = {**cell, "number": 2, "result": None, "seconds": None, "run_dir": None, "where": ""}
    whole = to_json(RecordedMatrix("mine.yaml", "mine", "/", "", 3.0, 1, 0, True, ()))
    found = read_run(write_run(tmp_path, None, matrix={**whole, "cells": [cell, left]}))
    assert found.missing == ()
    assert [(one.result, one.seconds, one.link) for one in found.trials] == [
        ("ok", 3.0, "01-offline"),
        ("", None, ""),
    ]


def test_reading_executes_and_writes_nothing(tmp_path: Path) -> None:
    write_run(tmp_path, events=[hello(1.0, 0)])
    before = subprocess.run(["ls", "-laR", tmp_path], capture_output=True, check=True).stdout
    assert isinstance(read_run(tmp_path), RecordedRun)
    after = subprocess.run(["ls", "-laR", tmp_path], capture_output=True, check=True).stdout
    assert before == after
