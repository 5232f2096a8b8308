"""What isolate says of a command line that it cannot follow, before anything is started."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from pathlib import Path

import pytest
from hangbisect.base.errors import UsageError
from hangbisect.cli import main
from hangbisect.commands.trials import isolate as run
from hangbisect.search.isolation import Isolation
from hangbisect.trials import isolation_session
from hangbisect.trials.isolation_request import (
    STARTED_IN,
    IsolationRecord,
    IsolationRequest,
    make_job,
)
from hypothesis import example, given
from hypothesis import strategies as st

OURS = ("torchrun", "-m", "bisect", "--num-workers", "2")
OPTIONS = {
    "file": None,
    "watch": {"stall": "10"},
    "limit": 60.0,
    "confirm": 3,
    "confidence": 0.9,
    "max_trials": 7,
    "max_time": 600.0,
    "only": ["wandb"],
    "without": [],
    "flaky": False,
    "describe": True,
}


TWO_NODES = ("torchrun", "--nnodes=2", "--node-rank=0", "train.py")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "isolate has no command to start"),
        (["--only", "wandbb", "--", *OURS], "'wandbb', and there is none; did you mean 'wandb'"),
        (["--without", "x", "--", *OURS], "--without names the toggle 'x'"),
        (["--only", "world-size", "--", *OURS], "--only names world_size, a probe"),
        (["--", *TWO_NODES], "--nnodes=2: the command starts the ranks of one node"),
        (["startup", "--", *OURS], "both a file (startup) and a command"),
        (["no-such-file.yaml"], "there is no scenario 'no-such-file.yaml'"),
        (["--resume", "nowhere"], "nowhere/isolation.json cannot be read"),
        (["--resume", "nowhere", "startup"], "nowhere/isolation.json cannot be read"),
        (["--confirm", "-1", "--", *OURS], "--confirm cannot be '-1'"),
        (["--confidence", "1.5", "--", *OURS], "--confidence cannot be '1.5'"),
        (["--max-trials", "0", "--", *OURS], "--max-trials cannot be '0'"),
        (["--max-tries", "3", "--", *OURS], "there is no argument '--max-tries'"),
        (["--yes", "python", "ok.py"], "-- is missing before the command 'python'"),
        (["sh", "--nproc_per_node=2", "x.py"], "-- is missing before the command 'sh'"),
        (["wandb", "--max-tries", "3"], "there is no argument '--max-tries'"),
        (["--timeout", "wandb_loger=3", "--", *OURS], "did you mean 'wandb_logger'?"),
    ],
)
def test_a_command_line_that_is_wrong_is_said_in_a_sentence(words: list[str], said: str) -> None:
    with pytest.raises(UsageError) as raised:
        run(words)
    assert said in str(raised.value)


def test_a_folder_that_has_an_isolation_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "isolation.json").write_text("{}")
    with pytest.raises(UsageError, match="has an isolation in it already"):
        make_job(IsolationRequest(command=OURS, folder=str(tmp_path)))


def test_a_command_of_ones_own_wants_leave_and_nobody_is_there(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    torchrun = tmp_path / "torchrun"
    torchrun.touch(0o755)
    command = (str(torchrun), "--nproc_per_node=2", "train.py", "--output_dir", "out")
    with pytest.raises(UsageError, match="no terminal to ask at"):
        isolation_session.isolate(IsolationRequest(command, folder=str(tmp_path / "iso")))
    told = capsys.readouterr().err
    assert "2 ranks each" in told
    assert "--output-dir out" in told
    assert not (tmp_path / "iso").exists()


@pytest.mark.parametrize(("program", "status"), [("nosuchcommand", 127), ("", 127), ("/tmp", 126)])
def test_nobody_is_asked_about_a_command_that_cannot_be_started(
    program: str, status: int, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["isolate", "--run-dir", str(tmp_path / "iso"), "--", program]) == status
    told = capsys.readouterr().err
    assert told.startswith(f"hangbisect: {program!r} cannot be started: ")
    assert "starts your command" not in told
    assert not (tmp_path / "iso").exists()


def test_what_is_said_now_has_the_last_word_over_what_a_file_says(tmp_path: Path) -> None:
    pytest.importorskip("pydantic")
    file = tmp_path / "mine.yaml"
    file.write_text(
        "pipeline: startup\nlimit: 90\nisolate: {confirm: 5, only: [wandb], max_trials: 7}\n"
    )
    work = make_job(
        IsolationRequest(
            file=str(file), confirm=0, only=("strategy",), folder=str(tmp_path / "iso")
        )
    )
    assert (work.plan.confirm, work.plan.only, work.plan.budget.starts) == (0, ("strategy",), 7)
    assert work.limit == 90
    assert work.plan.folder == os.getcwd()
    assert work.plan.ours


def test_no_confirmation_can_be_asked_for_in_a_file_too(tmp_path: Path) -> None:
    pytest.importorskip("pydantic")
    file = tmp_path / "mine.yaml"
    file.write_text("pipeline: startup\nisolate: {confirm: 0}\n")
    assert (
        make_job(IsolationRequest(file=str(file), folder=str(tmp_path / "iso"))).plan.confirm == 0
    )


def test_no_pipeline_is_said_to_be_started_unless_it_is(tmp_path: Path) -> None:
    work = make_job(IsolationRequest(command=OURS, folder=str(tmp_path / "iso")))
    assert work.plan.ours
    assert work.plan.again == f"hangbisect isolate --resume {tmp_path / 'iso'}"


def test_a_secret_in_the_command_has_to_be_said_again(tmp_path: Path) -> None:
    command = ("torchrun", "train.py", "--api-key", "abc")
    work = make_job(IsolationRequest(command=command, folder=str(tmp_path / "iso")))
    assert work.plan.again.endswith("-- torchrun train.py --api-key abc")


def test_it_is_resumed_only_where_it_was_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    begun = make_job(IsolationRequest(command=OURS, folder="iso", confirm=1, without=("hub",)))
    record = IsolationRecord(tmp_path / "iso")
    record.write(Isolation("interrupted", OURS, (), 0.0, options=begun.plan.options))
    again = make_job(IsolationRequest(resume="iso"))
    assert (again.plan.command, again.plan.confirm, again.plan.without) == (OURS, 1, ("hub",))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="was begun in"):
        make_job(IsolationRequest(resume="../iso"))


def begun_with(folder: Path, text: str) -> Path:
    """Write a scenario file and the record of an isolation of it that was interrupted."""
    pytest.importorskip("pydantic")
    file = folder / "mine.yaml"
    file.write_text(text)
    plan = make_job(IsolationRequest(file=str(file), folder=str(folder / "iso"))).plan
    record = IsolationRecord(folder / "iso")
    record.write(Isolation("interrupted", plan.command, (), 0.0, options=plan.options))
    return file


@pytest.mark.parametrize(
    "changed",
    [
        "command: python train.py --lr 2\n",
        "command: python train.py\nenvironment: {X: '2'}\n",
        "command: python train.py\nown_toggles: {lr: {values: {a: {}, b: {arguments: --lr 1}}}}\n",
    ],
)
def test_a_file_that_says_another_job_now_does_not_go_on_with_it(
    tmp_path: Path, changed: str
) -> None:
    file = begun_with(tmp_path, "command: python train.py\n")
    file.write_text(changed)
    with pytest.raises(UsageError, match=r"has been changed since .*iso was begun"):
        make_job(IsolationRequest(resume=str(tmp_path / "iso")))


def test_a_file_that_says_the_same_job_goes_on_with_it(tmp_path: Path) -> None:
    file = begun_with(tmp_path, "command: python train.py\n")
    file.write_text("# later\ncommand: python train.py\nlimit: 60\n")
    assert make_job(IsolationRequest(resume=str(tmp_path / "iso"))).limit == 60


def test_a_secret_in_a_file_need_not_be_said_again(tmp_path: Path) -> None:
    begun_with(tmp_path, "command: python train.py --api-key abcdef123456\n")
    work = make_job(IsolationRequest(resume=str(tmp_path / "iso")))
    assert work.plan.command[-1] == "abcdef123456"
    assert "abcdef123456" not in work.plan.again


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=3,
)


@pytest.mark.filterwarnings("error")
@given(name=st.sampled_from(["options", "trials", "command", *OPTIONS, "else"]), value=ANY_JSON)
@example(name="options", value={})
@example(name="options", value=None)
@example(name="watch", value=None)
def test_a_record_that_was_changed_goes_on_or_is_refused_in_a_sentence(
    name: str, value: object
) -> None:
    data = {
        "schema": 1,
        "command": list(OURS),
        "options": {**OPTIONS, STARTED_IN: os.getcwd()},
        "trials": [],
    }
    (data if name in data else data["options"])[name] = value  # type: ignore[index]
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", "")
        (Path(folder) / "isolation.json").write_text(json.dumps(data))
        with contextlib.suppress(UsageError):
            make_job(IsolationRequest(resume=folder))


def test_another_command_does_not_go_on_with_it(tmp_path: Path) -> None:
    begun = make_job(IsolationRequest(command=OURS, folder=str(tmp_path)))
    record = IsolationRecord(tmp_path)
    record.write(Isolation("interrupted", OURS, (), 0.0, options=begun.plan.options))
    with pytest.raises(UsageError, match="is an isolation of another command"):
        make_job(IsolationRequest(resume=str(tmp_path), command=("torchrun", "other.py")))


def test_a_secret_that_was_not_written_down_has_to_be_said_again(tmp_path: Path) -> None:
    command = ("torchrun", "train.py", "--api-key", "abc")
    begun = make_job(IsolationRequest(command=command, folder=str(tmp_path)))
    record = IsolationRecord(tmp_path)
    record.write(Isolation("interrupted", command, (), 0.0, options=begun.plan.options))
    with pytest.raises(UsageError, match="a secret in it, which was not written down"):
        make_job(IsolationRequest(resume=str(tmp_path)))
    assert make_job(IsolationRequest(resume=str(tmp_path), command=command)).plan.command == command
