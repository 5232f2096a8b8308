"""A case as a script of its own, under `hangbisect run` and for `attach`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hangbisect.base.errors import UsageError
from hangbisect.zoo import own_script
from hangbisect.zoo.case import Case, Stage, Truth, Under

CASE = Case(
    id="T1",
    title="made up",
    cluster="C1",
    reports=(),
    truth=Truth(outcome="hang"),
    ranks=4,
    options=("--stall", "5", "--until", "model", "--timeout", "model=9"),
    uses={"model": "build"},
)


def test_the_script_is_started_as_its_user_starts_it() -> None:
    words = own_script.plain_command(CASE, "T1_made_up", Stage(prefix=("nice",)))
    assert words[0] == "nice"
    assert "--nproc_per_node=4" in words
    assert words[words.index("train.py") + 1 :] == [
        *("--use", "model=T1_made_up:build", "--until", "model")
    ]


def test_what_is_for_the_watch_goes_to_run_and_not_to_the_script() -> None:
    words = own_script.watched_command(CASE, "T1_made_up", Stage(prefix=("nice",)))
    ours, theirs = words[: words.index("--")], words[words.index("--") + 1 :]
    assert words[0] == "nice"
    assert ours[-4:] == ["--stall", "5", "--timeout", "model=9"]
    assert "--stall" not in theirs
    assert "train.py" in theirs


def test_every_case_that_can_be_a_script_has_words_for_it() -> None:
    from hangbisect.zoo import case_files

    for kept in case_files.load_all_cases():
        if not own_script.why_not_under(kept.case, "run"):
            assert "train.py" in own_script.watched_command(kept.case, kept.module, Stage())


def test_nothing_of_ours_does_the_steps(tmp_path: Path) -> None:
    own_script.write_script(tmp_path, "T1_made_up", "from hangbisect.zoo.in_rank import x\n")
    assert (tmp_path / "T1_made_up.py").read_text() == "from train import x\n"
    for name in ("train.py",):
        text = (tmp_path / name).read_text()
        assert "hangbisect" not in text
        compile(text, name, "exec")


@pytest.mark.parametrize(
    ("case", "under", "why"),
    [
        (replace(CASE, pipeline="generation"), "run", "generation"),
        (replace(CASE, truth=Truth(outcome="crash")), "attach", "ends by itself"),
        (replace(CASE, under=("run",)), "pipeline", "only under run"),
        (CASE, "run", ""),
    ],
)
def test_why_a_case_cannot_be_had_in_a_way_is_said(case: Case, under: Under, why: str) -> None:
    said = own_script.why_not_under(case, under)
    assert (why in said) if why else said == ""


def test_a_way_that_there_is_not_gets_a_sentence() -> None:
    from hangbisect.commands import zoo

    with pytest.raises(UsageError, match="did you mean 'attach'"):
        zoo.run(["run", "I10", "--under", "run,atach"])
