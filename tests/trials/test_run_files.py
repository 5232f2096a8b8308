"""What a run folder tells."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hangbisect.base.json_codec import to_json
from hangbisect.base.rank_facts import RankFacts
from hangbisect.base.verdict_facts import HangPlace, Outcome, Ranks, Verdict
from hangbisect.trials.launch import find_rank_facts, find_verdict, read_reached_toggles, seconds_at


def verdict(outcome: Outcome, attempt: int = 0) -> str:
    return json.dumps(to_json(Verdict(outcome, "startup", (), attempt, 2, None, Ranks())))


def found_in(folder: Path) -> tuple[str, int]:
    found = find_verdict(folder)
    assert found
    return found.outcome, found.attempt


def events(folder: Path, *said: dict[str, Any]) -> None:
    (folder / "events.jsonl").write_text("".join(json.dumps(one) + "\n" for one in said) + "{cut")


def test_the_verdict_of_a_run_is_read_if_it_has_one(tmp_path: Path) -> None:
    assert find_verdict(tmp_path) is None
    assert find_verdict(tmp_path / "nothing here") is None
    (tmp_path / "verdict.json").write_text("{cut off")
    assert find_verdict(tmp_path) is None
    (tmp_path / "verdict.json").write_text(verdict("ok"))
    assert found_in(tmp_path) == ("ok", 0)


def test_of_several_nodes_the_one_that_hangs_counts_and_of_several_attempts_the_last(
    tmp_path: Path,
) -> None:
    for name, text in {
        "node-0": verdict("ok"),
        "node-1": verdict("hang"),
        "elsewhere-1": verdict("crash"),
    }.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "verdict.json").write_text(text)
    assert found_in(tmp_path) == ("hang", 0)
    (tmp_path / "attempt-1").mkdir()
    (tmp_path / "attempt-1" / "verdict.json").write_text(verdict("ok", 1))
    assert found_in(tmp_path) == ("ok", 1)


def test_an_attempt_of_another_node_counts(tmp_path: Path) -> None:
    for name, text in {".": verdict("ok"), "attempt-1": verdict("ok", 1)}.items():
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "verdict.json").write_text(text)
    last = tmp_path / "node-n02.cluster" / "attempt-1"
    last.mkdir(parents=True)
    (last / "verdict.json").write_text(verdict("hang", 1))
    (last / "evidence.json").write_text('{"ranks": [{"rank": 1}]}')
    (tmp_path / "evidence.json").write_text('{"ranks": [{"rank": 0}]}')
    assert found_in(tmp_path) == ("hang", 1)
    assert find_rank_facts(tmp_path) == (RankFacts(1),)


def test_evidence_is_empty_where_there_is_none(tmp_path: Path) -> None:
    assert find_rank_facts(tmp_path) == ()


def test_the_slowest_rank_tells_how_long_a_step_takes(tmp_path: Path) -> None:
    events(
        tmp_path,
        {"t": "enter", "rank": 0, "n": 3, "at": 1.0},
        {"t": "table", "numbers": {"logs_directory": 3, "training": 12}},
        {"t": "enter", "rank": 1, "n": 3, "at": 1.5},
        {"t": "reached", "rank": 0, "n": 3, "at": 2.0},
        {"t": "reached", "rank": 1, "n": 3, "at": 5.5},
        {"t": "enter", "rank": 0, "n": 12, "at": 6.0},
        {"t": "phase", "rank": 0, "n": 12, "name": "wrap", "at": 7.0},
        {"t": "phase", "rank": 0, "n": 12, "name": "first_batch", "at": 9.5},
        {"t": "line", "rank": 2, "text": "a rank that came to no step", "at": 9.6},
    )
    assert seconds_at(tmp_path, HangPlace("logs_directory")) == 4.0
    assert seconds_at(tmp_path, HangPlace("training", "wrap")) == 2.5
    assert seconds_at(tmp_path, HangPlace("training", "first_batch")) is None
    assert seconds_at(tmp_path, HangPlace(None)) is None


def test_in_a_script_of_ones_own_a_step_lasts_until_it_ends(tmp_path: Path) -> None:
    wandb = {"step": "wandb_init", "k": 1, "checkpoint": "wandb_logger", "phase": None}
    inner = {"step": "hub_download", "k": 1, "checkpoint": None, "phase": None}
    events(
        tmp_path,
        {"t": "begin", "rank": 0, "at": 1.0, **wandb},
        {"t": "begin", "rank": 0, "at": 2.0, **inner},
        {"t": "end", "rank": 0, "at": 3.0, "step": "hub_download", "k": 1},
        {"t": "begin", "rank": 1, "at": 1.0, **wandb},
        {"t": "end", "rank": 0, "at": 5.0, "step": "wandb_init", "k": 1},
    )
    assert seconds_at(tmp_path, HangPlace("wandb_logger")) == 4.0
    assert seconds_at(tmp_path, HangPlace("hub_download")) == 1.0
    assert seconds_at(tmp_path, HangPlace("tokenizer")) is None


def test_what_ranks_told_of_toggles_is_read_from_every_node(tmp_path: Path) -> None:
    assert read_reached_toggles(tmp_path) == ([], False)
    for node, name in (("node-0", "num_workers=4"), ("node-1", "wandb")):
        (tmp_path / node).mkdir()
        hello = {"t": "hello", "rank": 0, "own": True}
        events(tmp_path / node, hello, {"t": "toggle", "rank": 0, "name": name, "at": 1.0})
    assert read_reached_toggles(tmp_path) == (["num_workers=4", "wandb"], True)
