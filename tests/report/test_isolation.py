"""The answer of an isolation in words."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hangbisect.base.verdict_facts import HangPlace, Setting, Trial
from hangbisect.base.words import wrap_line
from hangbisect.report.isolation_text import (
    MOST_TRIAL_ROWS,
    answer_lines,
    format_probability,
    report_text,
    shorten_setting,
    trial_line,
)
from hangbisect.search.isolation import Count, Isolation, ObservedHang, ToggleChange
from hangbisect.toggles.command_toggles import UNREACHED
from hypothesis import given
from hypothesis import strategies as st

PLACE = HangPlace("wandb_logger", call="wandb.init", component="wandb")
SEEN = ObservedHang(
    PLACE, 9, "WandbLogger ready", (0,), "service-silent", "it never answers", "wandb", ()
)
WANDB = ToggleChange("wandb", "wandb", "logger", "offline", "no live charts until wandb sync")
SAFE = {"wandb": "off", "strategy": "ddp", "num_workers": "0", "make_logs_dir": "rank0"}


def trial(number: int, setting: Setting, hangs: bool = False) -> Trial:
    return Trial(
        number=number,
        setting=setting,
        result="hang" if hangs else "pass",
        outcome="hang" if hangs else "ok",
        seconds=38.0 if hangs else 21.4,
        command=("torchrun", "train.py"),
        environment={},
        run_dir=f"iso/trials/{number:02}",
        why="hang at checkpoint 9 in wandb.init, rank 0" if hangs else "past wandb_logger",
    )


TRIALS = (
    trial(1, {}, hangs=True),
    trial(2, SAFE),
    *(trial(n, {} if n % 2 else {"wandb": "offline"}, hangs=bool(n % 2)) for n in range(3, 10)),
)
FOUND = Isolation(
    outcome="isolated",
    command=("torchrun", "train.py"),
    trials=TRIALS,
    seconds=372.0,
    seen=SEEN,
    changes=(WANDB,),
    paste="WANDB_MODE=offline torchrun train.py",
    with_it=Count(3, 0),
    without=Count(3, 3),
    p_value=0.05,
    not_it=("strategy=ddp", "num_workers=0"),
    unused={"attention": "it changes nothing without --model", "packing": "it is off already"},
    next="take the command above",
)


def test_the_answer_has_its_parts_in_their_order() -> None:
    lines = answer_lines(FOUND, folder="iso")
    assert lines[0] == (
        "ISOLATED  9 starts, 6 min: it hangs with wandb=logger, not with wandb=offline"
    )
    heads = [line[:10].strip() for line in lines]
    order = ("change", "command", "with it", "without", "not it", "unused", "costs")
    assert [head for head in heads if head in order] == list(order)
    assert "change    wandb: logger -> offline" in lines
    assert "command   WANDB_MODE=offline torchrun train.py" in lines
    assert "with it   0 hangs in 3 starts, past checkpoint 9" in lines
    without = next(line for line in lines if line.startswith("without"))
    assert without.startswith("without   3 hangs in 3 starts, rank 0 in wandb.init")
    assert without.endswith("p = 0.05  (--confirm 5: 0.004)")
    assert "not it    strategy=ddp, num_workers=0: still hangs" in lines
    assert "unused    2 toggles, for reasons in iso/report.md" in lines
    assert lines[-2:] == ["report    iso/report.md", "next      take the command above"]


def test_the_table_is_short_on_a_terminal_and_whole_in_the_report() -> None:
    lines = answer_lines(FOUND, folder="iso")
    rows = [line for line in lines if line[:2].strip().isdigit()]
    assert len(rows) == MOST_TRIAL_ROWS
    assert "   (1 more in iso/report.md)" in lines
    whole = report_text(FOUND, folder="iso")
    assert sum(line[:2].strip().isdigit() for line in whole.splitlines()) == len(TRIALS)
    assert whole.startswith("```\nISOLATED")
    reasons = (
        "unused    attention: it changes nothing without --model",
        "          packing: as safe as can be already",
    )
    assert "\n".join(reasons) in whole


@pytest.mark.parametrize("width", [40, 60])
def test_lines_are_broken_between_words_but_commands_never(width: int) -> None:
    again = "hangbisect isolate --resume " + "y" * 60
    long = replace(FOUND, paste="torchrun " + "x" * 200, next=again)
    lines = answer_lines(long, folder="iso", width=width)
    kept = [line for line in lines if line.startswith("command") or line.endswith(again)]
    assert len(kept) == 2
    assert kept[0].endswith(long.paste)
    assert max(len(line) for line in lines if line not in kept) <= width
    whole = answer_lines(long, folder="iso")[0].split()
    assert " ".join(lines).split()[: len(whole)] == whole


@given(st.text(st.sampled_from("ab-,    "), max_size=200), st.integers(1, 60))
def test_no_word_is_lost_where_a_line_is_broken(line: str, width: int) -> None:
    parts = wrap_line(line, width, 10)
    assert " ".join(parts).split() == line.split()
    assert wrap_line(line, None, 10) == [line]


def test_what_was_not_started_again_is_not_said_to_be_confirmed() -> None:
    found = replace(FOUND, confirm=0, with_it=None, without=None, p_value=None)
    lines = answer_lines(found, folder="iso")
    assert "with it   not started again: --confirm 0" in lines
    assert not any("p = " in line for line in lines)


def test_two_changes_are_said_to_be_needed_together() -> None:
    workers = ToggleChange("num_workers", "data", "4", "0", "")
    lines = answer_lines(replace(FOUND, changes=(WANDB, workers)), folder="iso")
    assert lines[0].endswith(
        "it hangs as you run it, not with wandb=offline and num_workers=0 together"
    )


@pytest.mark.parametrize(
    ("outcome", "first"),
    [
        ("hangs_all_safe", "HANGS EVEN WITH ALL SAFE  9 starts, 6 min: so it is"),
        ("no_hang", "NO HANG in 9 starts, 6 min: so it is"),
        ("not_isolated", "NOT ISOLATED  9 starts, 6 min: so it is"),
        ("interrupted", "INTERRUPTED  9 starts, 6 min: so it is"),
    ],
)
def test_every_other_end_has_first_words_of_its_own(outcome: str, first: str) -> None:
    found = replace(FOUND, outcome=outcome, why="so it is", changes=(), with_it=None, without=None)  # type: ignore[arg-type]
    lines = answer_lines(found, folder="iso")
    assert lines[0] == first
    assert "cause     it never answers" in lines


def test_a_hang_that_comes_and_goes_is_said_to() -> None:
    found = replace(FOUND, flaky=True, without=Count(20, 4), with_it=Count(31, 0), p_value=0.011)
    lines = answer_lines(found, folder="iso")
    assert "it comes and goes with wandb=logger, not with wandb=offline" in lines[0]
    assert any(line.endswith("p = 0.01") for line in lines)
    rare = "(by 95% confidence at most 11.2% of them hang)"
    assert any(line.startswith("with it") and line.endswith(rare) for line in lines)


def test_what_a_stranger_wrote_stays_on_its_line() -> None:
    odd = replace(TRIALS[0], why="crash: a\nb\x1b[31m")
    lines = answer_lines(replace(FOUND, trials=(odd,), why="x\ny"), folder="iso")
    assert all(char.isprintable() for line in lines for char in line)


def test_a_setting_is_told_in_few_words() -> None:
    assert shorten_setting({}, SAFE) == "as you run it"
    assert shorten_setting(SAFE, SAFE) == "all safe"
    assert shorten_setting({"wandb": "off"}, SAFE) == "wandb=off"
    assert (
        shorten_setting({k: v for k, v in SAFE.items() if k != "wandb"}, SAFE)
        == "all safe but wandb"
    )
    assert shorten_setting({**SAFE, "wandb": "rank0"}, SAFE) == "all safe but wandb=rank0"


def test_the_story_has_a_line_a_trial() -> None:
    line = trial_line(trial(3, {"wandb": "offline"}), 8, SAFE)
    assert line == "trial 3 of about 8: wandb=offline, others as you run it ... pass, 21 s"
    late = trial_line(trial(12, {}, hangs=True), 8, SAFE)
    assert late.startswith("trial 12, more than about 8: as you run it ... hang at checkpoint 9")


def test_probabilities() -> None:
    assert [format_probability(p) for p in (0.05, 0.004, 1 / 252, 0.17)] == [
        "0.05",
        "0.004",
        "0.004",
        "0.17",
    ]


def test_what_the_script_never_reaches_is_counted_and_named_in_the_report() -> None:
    unused = {"wandb": UNREACHED, "hub": UNREACHED, "num_workers": "it is 0 already"}
    found = replace(FOUND, unused=unused)
    (told,) = [line for line in answer_lines(found, folder="iso") if line.startswith("unused")]
    assert (
        told == "unused    3 toggles (2 never reached by the script), for reasons in iso/report.md"
    )
    assert f"unused    wandb, hub: {UNREACHED}" in report_text(found, folder="iso")


def test_what_is_to_be_changed_in_the_code_stands_before_the_command() -> None:
    workers = ToggleChange("num_workers", "data", "4", "0", "", "DataLoader(num_workers=0)")
    lines = answer_lines(replace(FOUND, changes=(workers,)), folder="iso")
    at = lines.index("in code   DataLoader(num_workers=0)")
    assert lines[at - 1] == "change    num_workers: 4 -> 0"
    assert lines[at + 1].startswith("command ")
