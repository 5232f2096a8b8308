"""What two starts differ in, found among made-up ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hangbisect.report.comparison import compare_runs, comparison_lines
from hangbisect.report.run_differences import (
    NOISE_SECONDS,
    NOISE_SHARE,
    Comparison,
    same_time,
    same_value,
    varies_by_start,
)
from hangbisect.report.run_reader.run import RecordedRun
from hypothesis import given
from hypothesis import strategies as st

from .made_up import HANG, VERDICT, moved_by, start

GOOD = start({3: (0.1, 0.1), 4: (4.0, 4.0), 9: (1.5, 1.5)})


def settings(found: Comparison) -> list[tuple[str, str, str, str]]:
    return [(one.topic, one.name, one.a, one.b) for one in found.settings]


def times(found: Comparison) -> list[str]:
    return [one.title for one in found.times]


def test_the_same_start_again_is_the_same() -> None:
    again = start({3: (0.1, 0.1), 4: (4.9, 4.3), 9: (1.8, 1.0)}, began=900.0)
    found = compare_runs(GOOD, moved_by(again, 86_400))
    assert found.is_same
    assert found.same == {"environment": 1, "versions": 2, "python": 1, "machine": 2, "steps": 3}
    assert comparison_lines(found, None, None)[-1].startswith("same      nothing differs: ")


@given(st.floats(0, 1000), st.floats(0, 1000))
def test_what_is_noise_is_so_from_both_sides(one: float, other: float) -> None:
    assert same_time(one, one)
    assert same_time(one, other) == same_time(other, one)
    assert same_time(one, other) == (
        abs(one - other) <= max(NOISE_SECONDS, NOISE_SHARE * max(one, other))
    )


def test_names_drawn_by_lot_are_the_same_and_ports_that_a_person_chose_are_not() -> None:
    assert same_value("MASTER_PORT", "41234", "52345")
    assert not same_value("MASTER_PORT", "29500", "29501")
    assert same_value("X", "/tmp/hangbisect-fd8bb81b8ea1.tmp/x", "/tmp/torchinductor_ada")
    assert not same_value("X", "/data/a", "/data/b")
    assert varies_by_start("SLURM_JOB_ID")
    assert varies_by_start("LOCAL_RANK")
    assert not varies_by_start("WANDB_MODE")
    assert not varies_by_start("SLURM_JOB_PARTITION")


def test_a_step_that_one_start_never_ended_is_told_first() -> None:
    bad = start({3: (0.1, 0.1), 4: (14.0, 14.0), 9: (1.5, None)}, verdict=HANG)
    found = compare_runs(GOOD, bad)
    assert times(found) == ["WandbLogger ready", "Tokenizer loaded"]
    (stopped, slower) = found.times
    assert stopped.b.stopped == (1,)
    assert stopped.b.unended == pytest.approx(
        31.5
    )  # rank 0 came to its end 1.5 s later, and the verdict 30 s
    assert slower.seconds == pytest.approx(10.0)
    assert not found.is_same
    lines = "\n".join(comparison_lines(found, None, None))
    assert (
        "B         hang at 9 WandbLogger ready: rank 1 in wandb.init  2 ranks, 20 s  run" in lines
    )
    assert "cause: the server never answers" in lines
    assert "9 WandbLogger ready  A 1.5 s  B rank 1: not ended after" in lines


def test_what_a_start_that_stopped_never_came_to_is_no_news() -> None:
    bad = start({3: (0.1, 0.1), 4: (4.0, None)}, verdict=HANG)
    assert times(compare_runs(GOOD, bad)) == ["Tokenizer loaded"]
    without = start({3: (0.1, 0.1), 4: (4.0, 4.0)})  # it ended well, and did not do it
    assert times(compare_runs(GOOD, without)) == ["WandbLogger ready"]
    assert "B not done" in "\n".join(comparison_lines(compare_runs(GOOD, without), None, None))


def test_the_rank_and_the_import_that_took_longer_are_named() -> None:
    a = start({4: (4.0, 4.0)}, imports={4: 3.0})
    b = start({4: (9.2, 44.0)}, imports={4: 9.0})
    found = compare_runs(a, b)
    assert [(one.title, one.depth, one.ranks) for one in found.times] == [
        ("Tokenizer loaded", 0, (1,)),
        ("import torch", 1, ()),
    ]


def test_variables_are_compared_rank_by_rank() -> None:
    bad = start(
        {3: (0.1, 0.1), 4: (4.0, 4.0), 9: (1.5, 1.5)},
        variables={"HTTPS_PROXY": "http://proxy:3128"},
        of_rank_1={"NCCL_DEBUG": "INFO"},
        versions={"hangbisect": "0.1.0", "torch": "2.14.0"},
        host="n02",
    )
    found = compare_runs(GOOD, bad)
    assert settings(found) == [
        ("ranks", "hosts", "n01", "n02"),
        ("environment", "HTTPS_PROXY", "", "http://proxy:3128"),
        ("environment", "NCCL_DEBUG", "", "INFO"),
        ("versions", "torch", "2.13.0", "2.14.0"),
    ]
    assert [one.ranks for one in found.settings] == [(), (), (1,), ()]


def test_what_libraries_set_on_the_way_is_not_missed_in_a_start_that_stopped() -> None:
    late = start(
        {3: (0.1, 0.1), 4: (4.0, 4.0), 9: (1.5, 1.5)},
        variables={"TORCH_SET_BY_ITSELF": "1"},
        versions={"hangbisect": "0.1.0", "torch": "2.13.0", "wandb": "0.31.0"},
    )
    bad = start({3: (0.1, 0.1), 4: (4.0, None)}, verdict=HANG)
    assert settings(compare_runs(late, bad)) == settings(compare_runs(bad, late)) == []
    assert len(settings(compare_runs(late, GOOD))) == 2
    # Where it was there from the start, the one that stopped has missed it.
    hello = {**late.events[0], "t": "hello", "environment": {"TORCH_SET_BY_ITSELF": "1"}}
    early = replace(late, events=(*late.events, hello))
    assert [name for _, name, _, _ in settings(compare_runs(early, bad))] == ["TORCH_SET_BY_ITSELF"]


def test_another_size_is_told_and_ranks_that_both_have_are_compared() -> None:
    bad = start({3: (0.1,) * 4, 4: (4.0,) * 4, 9: (1.5,) * 4})
    found = compare_runs(GOOD, bad)
    assert settings(found) == [("ranks", "ranks", "2", "4")]
    assert found.times == ()


def test_of_a_command_only_what_differs_is_told() -> None:
    command = [
        "torchrun",
        "--nproc_per_node=2",
        "-m",
        "bisect",
        "--wandb",
        "offline",
        "--run-dir",
        "x",
    ]
    other = [*command[:5], "logger", "--run-dir", "y", "--json"]
    a, b = (
        start({3: (0.1,)}, verdict=replace(VERDICT, command=tuple(one))) for one in (command, other)
    )
    assert settings(compare_runs(a, b)) == [
        ("command", "command", "--wandb offline", "--wandb logger")
    ]


def test_a_secret_that_ranks_masked_is_said_to_be_unknown() -> None:
    masked = {"WANDB_API_KEY": "*** (40 characters)"}
    found = compare_runs(start({3: (0.1,)}, variables=masked), start({3: (0.1,)}, variables=masked))
    assert found.missing == ("masked by the ranks, so nobody can tell: WANDB_API_KEY",)


@pytest.mark.parametrize(
    "other", [RecordedRun(Path("empty")), RecordedRun(Path("v"), verdict=HANG)]
)
def test_of_a_damaged_run_is_compared_what_is_left(other: RecordedRun) -> None:
    for a, b in ((GOOD, other), (other, GOOD), (other, other)):
        found = compare_runs(a, b)
        lines = comparison_lines(found, 80, 24)
        assert any("no rank told of its steps" in line for line in lines)
    assert "no verdict" in "\n".join(
        comparison_lines(compare_runs(GOOD, RecordedRun(Path("x"))), 80, 24)
    )


@given(st.integers(0, 60), st.integers(20, 200), st.integers(1, 60))
def test_on_a_terminal_it_is_a_screen_at_most(variables: int, width: int, height: int) -> None:
    many = {f"NCCL_{n}": "x" * n for n in range(variables)}
    bad = start({3: (0.1, 0.1), 4: (4.0, None)}, variables=many, verdict=HANG)
    lines = comparison_lines(compare_runs(GOOD, bad), width, height)
    assert len(lines) <= max(height - 1, 12)
    assert max(map(len, lines)) <= width


def test_a_thousand_ranks_are_compared_by_groups() -> None:
    a = start({3: (0.1,) * 1024, 4: (4.0,) * 1024})
    b = start({3: (0.1,) * 1024, 4: (*(4.0,) * 1000, *(60.0,) * 24)})
    found = compare_runs(a, b)
    assert found.times[0].ranks == tuple(range(1000, 1024))
    assert "(most: ranks 1000-1023)" in comparison_lines(found, None, None)[2]


def test_nodes_are_compared_by_the_ranks_that_run_there() -> None:
    def on_two_nodes(kernel: str) -> RecordedRun:
        whole = start({3: (0.1,) * 4})
        parts = []
        for host, ranks in (("n01", ("0", "1")), ("n02", ("2", "3"))):
            assert whole.environment
            mine = {rank: whole.environment.ranks[rank] for rank in ranks}
            events = tuple(e for e in whole.events if str(e.get("rank", ranks[0])) in ranks)
            here = replace(whole.environment, host=host, ranks=mine)
            if host == "n02":
                here = replace(here, kernel=kernel)
            parts.append(replace(whole, events=events, environment=here))
        return replace(parts[0], nodes=(parts[1],))

    found = compare_runs(on_two_nodes("6.18"), on_two_nodes("6.19"))
    assert settings(found) == [("machine", "kernel", "6.18", "6.19")]
    assert found.settings[0].ranks == (2, 3)
