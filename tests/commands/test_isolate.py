"""What isolate says of a command line that it cannot follow, before anything is started."""

from __future__ import annotations

from pathlib import Path

import pytest
from hangbisect.bisection.isolation import Isolation
from hangbisect.commands.isolate import run
from hangbisect.errors import UsageError
from hangbisect.trials import isolation_session
from hangbisect.trials.isolation_record import IsolationRecord
from hangbisect.trials.isolation_request import Request, job

OURS = ("torchrun", "-m", "bisect", "--num-workers", "2")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "isolate has no command to start"),
        (["--only", "wandbb", "--", *OURS], "'wandbb', and there is none; did you mean 'wandb'"),
        (["--without", "x", "--", *OURS], "--without names the toggle 'x'"),
        (["startup", "--", *OURS], "both a file (startup) and a command"),
        (["no-such-file.yaml"], "there is no scenario 'no-such-file.yaml'"),
        (["--resume", "nowhere"], "nowhere/isolation.json cannot be read"),
        (["--resume", "nowhere", "startup"], "nowhere/isolation.json cannot be read"),
        (["--confirm", "-1", "--", *OURS], "--confirm cannot be '-1'"),
        (["--confidence", "1.5", "--", *OURS], "--confidence cannot be '1.5'"),
        (["--max-trials", "0", "--", *OURS], "--max-trials cannot be '0'"),
        (["--max-tries", "3", "--", *OURS], "there is no argument '--max-tries'"),
    ],
)
def test_a_command_line_that_is_wrong_is_said_in_a_sentence(words: list[str], said: str) -> None:
    with pytest.raises(UsageError) as raised:
        run(words)
    assert said in str(raised.value)


def test_a_folder_that_has_an_isolation_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "isolation.json").write_text("{}")
    with pytest.raises(UsageError, match="has an isolation in it already"):
        job(Request(command=OURS, folder=str(tmp_path)))


def test_a_command_of_ones_own_wants_leave_and_nobody_is_there(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    command = ("torchrun", "--nproc_per_node=2", "train.py", "--output_dir", "out")
    with pytest.raises(UsageError, match="no terminal to ask at"):
        isolation_session.isolate(Request(command=command, folder=str(tmp_path / "iso")))
    told = capsys.readouterr().err
    assert "2 ranks each" in told
    assert "--output-dir out" in told
    assert not (tmp_path / "iso").exists()


def test_what_is_said_now_has_the_last_word_over_what_a_file_says(tmp_path: Path) -> None:
    pytest.importorskip("pydantic")
    file = tmp_path / "mine.yaml"
    file.write_text(
        "pipeline: startup\nlimit: 90\nisolate: {confirm: 5, only: [wandb], max_trials: 7}\n"
    )
    work = job(Request(file=str(file), confirm=0, only=("strategy",), folder=str(tmp_path / "iso")))
    assert (work.plan.confirm, work.plan.only, work.plan.budget.starts) == (0, ("strategy",), 7)
    assert work.limit == 90
    assert work.plan.ours


def test_no_pipeline_is_said_to_be_started_unless_it_is(tmp_path: Path) -> None:
    work = job(Request(command=OURS, folder=str(tmp_path / "iso")))
    assert work.plan.ours
    assert work.plan.again == f"hangbisect isolate --resume {tmp_path / 'iso'}"


def test_a_secret_in_the_command_has_to_be_said_again(tmp_path: Path) -> None:
    command = ("torchrun", "train.py", "--api-key", "abc")
    work = job(Request(command=command, folder=str(tmp_path / "iso")))
    assert work.plan.again.endswith("-- torchrun train.py --api-key abc")


def test_it_is_resumed_only_where_it_was_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    begun = job(Request(command=OURS, folder="iso", confirm=1, without=("hub",)))
    record = IsolationRecord(tmp_path / "iso")
    record.write(Isolation("interrupted", OURS, (), 0.0, options=begun.plan.options))
    again = job(Request(resume="iso"))
    assert (again.plan.command, again.plan.confirm, again.plan.without) == (OURS, 1, ("hub",))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="was begun in"):
        job(Request(resume="../iso"))


def test_another_command_does_not_go_on_with_it(tmp_path: Path) -> None:
    begun = job(Request(command=OURS, folder=str(tmp_path)))
    record = IsolationRecord(tmp_path)
    record.write(Isolation("interrupted", OURS, (), 0.0, options=begun.plan.options))
    with pytest.raises(UsageError, match="is an isolation of another command"):
        job(Request(resume=str(tmp_path), command=("torchrun", "other.py")))


def test_a_secret_that_was_not_written_down_has_to_be_said_again(tmp_path: Path) -> None:
    command = ("torchrun", "train.py", "--api-key", "abc")
    begun = job(Request(command=command, folder=str(tmp_path)))
    record = IsolationRecord(tmp_path)
    record.write(Isolation("interrupted", command, (), 0.0, options=begun.plan.options))
    with pytest.raises(UsageError, match="a secret in it, which was not written down"):
        job(Request(resume=str(tmp_path)))
    assert job(Request(resume=str(tmp_path), command=command)).plan.command == command
