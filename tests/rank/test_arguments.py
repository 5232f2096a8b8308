"""The command line of a walk, and what is said of a wrong one."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Mapping

import pytest
from hangbisect.base.checkpoints import STARTUP_BY_NAME
from hangbisect.base.errors import UsageError
from hangbisect.base.pipeline import find_pipeline
from hangbisect.base.place import Place
from hangbisect.rank.arguments import parse_walk_arguments
from hangbisect.toggles.table import TOGGLES
from hypothesis import given
from hypothesis import strategies as st

PLACE = Place(0, 0, 1, 1, 0, 0, "host", None, 1, "job")
OTHER = Place(1, 1, 2, 2, 0, 0, "host", "torchrun", 1, "job")


def parsed(*argv: str, environ: Mapping[str, str] | None = None) -> argparse.Namespace:
    args, _ = parse_walk_arguments(argv, PLACE, environ or {})
    return args


def complaint(*argv: str, environ: Mapping[str, str] | None = None) -> str:
    with pytest.raises(UsageError) as caught:
        parse_walk_arguments(argv, PLACE, environ or {})
    return str(caught.value)


def test_the_defaults_are_those_that_people_run() -> None:
    args = parsed()
    assert (args.batch_size, args.max_steps, args.fast_dev_run, args.num_workers) == (
        32,
        10000,
        0,
        0,
    )
    assert (args.wandb, args.strategy, args.make_logs_dir, args.hub) == (
        "logger",
        "auto",
        "all",
        "online",
    )
    assert (args.barriers, args.on_hang, args.stall, args.timeout) == ("lockstep", "end", 20.0, {})


@pytest.mark.parametrize("flag", ["--fast-dev-run", "--fast_dev_run", "--fast_dev-run"])
@pytest.mark.parametrize("joined", [True, False])
def test_a_flag_may_be_spelt_with_either(flag: str, joined: bool) -> None:
    words = [f"{flag}=5"] if joined else [flag, "5"]
    assert parsed(*words).fast_dev_run == 5


@pytest.mark.parametrize(
    "argv",
    [
        ("--local-rank=1", "--num-workers", "2"),
        ("--num-workers", "2", "--local_rank", "1"),
    ],
)
def test_local_rank_is_accepted_anywhere(argv: tuple[str, ...]) -> None:
    args = parsed(*argv)
    assert (args.local_rank, args.num_workers) == (1, 2)


def test_an_underscore_in_a_value_stays() -> None:
    assert parsed("--run-dir", "my_runs/--a_b").run_dir == "my_runs/--a_b"
    assert parsed("--env=MY_NAME=a_b").env == {"MY_NAME": "a_b"}


def test_lists_become_names_and_values() -> None:
    args = parsed(
        *("--timeout", "9", "--timeout", "tokenizer=60", "--timeout=first_batch=2.5"),
        *("--use", "callbacks=mine.code:make", "--use", "logger=mine:log"),
        *("--skip", "wandb_logger", "--env", "A=b=c", "--env", "D="),
    )
    assert args.timeout == {"": 9.0, "tokenizer": 60.0, "first_batch": 2.5}
    assert args.use == {"memory_callback": "mine.code:make", "wandb_logger": "mine:log"}
    assert args.skip == ["wandb_logger"]
    assert args.env == {"A": "b=c", "D": ""}


def test_injections_are_looked_up_in_the_table() -> None:
    number = STARTUP_BY_NAME["wandb_logger"].number
    where = f"sleep@{number}:rank1"
    first, second = parsed("--inject", where, "--inject", "stop@first_batch").inject
    assert (first.kind, first.place, first.rank) == ("sleep", "wandb_logger", 1)
    assert (second.place, second.rank) == ("first_batch", None)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("--wandb", "ofline"), ["--wandb", "'ofline'", "every-rank, logger", "mean 'offline'"]),
        (("--wandbb", "off"), ["'--wandbb'", "mean '--wandb'"]),
        (("--batch", "1"), ["'--batch'", "mean '--batch-size'"]),
        (("--batch-size", "0"), ["--batch-size", "'0'", "from 1"]),
        (("--num-workers", "two"), ["--num-workers", "'two'", "whole number"]),
        (("--stall", "-1"), ["--stall", "'-1'", "above 0"]),
        (("--stall", "nan"), ["--stall", "'nan'"]),
        (("--timeout", "tokeniser=3"), ["--timeout", "'tokeniser'", "mean 'tokenizer'"]),
        (("--until", "trainr"), ["--until", "'trainr'", "mean 'trainer'"]),
        (("--skip", "model"), ["--skip", "'model'", "logs_directory"]),
        (("--use", "model"), ["--use", "'model'", "STEP=module:function"]),
        (("--use", "modell=a:b"), ["--use", "'modell'", "mean 'model'"]),
        (("--env", "NAME"), ["--env", "'NAME'", "NAME=VALUE"]),
        (("--pipeline", "start"), ["--pipeline", "'start'", "startup"]),
        (("--inject", "slep@9"), ["--inject", "'slep'", "mean 'sleep'"]),
        (("--max-steps",), ["--max-steps", "expected one argument"]),
        (("train.py",), ["'train.py'"]),
    ],
)
def test_a_wrong_value_gets_one_sentence_with_the_nearest_match(
    argv: tuple[str, ...], said: list[str]
) -> None:
    text = complaint(*argv)
    assert [word for word in said if word not in text] == []
    assert "\n" not in text


def test_options_of_the_watch_are_read_from_the_environment_too() -> None:
    environ = {
        "HANGBISECT_STALL": "7",
        "HANGBISECT_TIMEOUT": "60,tokenizer=90",
        "HANGBISECT_BARRIERS": "observe",
        "HANGBISECT_JSON": "1",
        "HANGBISECT_PLAIN": "0",
        "HANGBISECT_LIMIT": "",
    }
    args = parsed("--stall", "8", environ=environ)
    assert (args.stall, args.barriers, args.json, args.plain) == (8.0, "observe", True, False)
    assert args.timeout == {"": 60.0, "tokenizer": 90.0}
    assert args.limit is None


@pytest.mark.parametrize(
    ("variable", "value"),
    [("HANGBISECT_STALL", "soon"), ("HANGBISECT_ON_HANG", "kill"), ("HANGBISECT_JSON", "yes")],
)
def test_a_wrong_variable_is_named_itself(variable: str, value: str) -> None:
    text = complaint(environ={variable: value})
    assert variable in text
    assert repr(value) in text


def test_every_toggle_has_its_argument() -> None:
    for toggle in [entry for entry in TOGGLES if "startup" in entry.pipelines and entry.flag]:
        for value in toggle.values:
            assert str(getattr(parsed(toggle.flag, value), toggle.dest)) == value


def test_help_lists_checkpoints_phases_deadlines_and_toggles(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as left:
        parse_walk_arguments(["--help"], PLACE, {})
    assert left.value.code == 0
    shown = capsys.readouterr().out
    for row in find_pipeline("startup").table:
        assert f"{row.number:2} {row.name} " in shown
        assert all(f"phase {phase.name} " in shown for phase in row.phases)
    # What only a server's own flags change is none of a walk's.
    of_walks = [toggle for toggle in TOGGLES if toggle.variable or not toggle.servers]
    read = [toggle for toggle in of_walks if not toggle.flag or "startup" in toggle.pipelines]
    assert all((toggle.flag or toggle.variable or toggle.name) in shown for toggle in read)
    assert "900 s" in shown


def test_help_is_not_printed_by_every_rank(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_walk_arguments(["-h"], OTHER, {})
    assert capsys.readouterr().out == ""


@given(st.lists(st.text(max_size=20), max_size=5))
def test_whatever_is_written_is_understood_or_refused(argv: list[str]) -> None:
    with contextlib.suppress(UsageError):
        parse_walk_arguments([word for word in argv if word not in ("-h", "--help")], PLACE, {})
