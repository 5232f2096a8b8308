"""isolation.json: what is written, and what can be read of it again."""

from __future__ import annotations

import contextlib
import importlib.resources
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hangbisect.base.errors import UsageError
from hangbisect.base.verdict_facts import Trial
from hangbisect.search.isolation import Isolation
from hangbisect.trials.isolation_request import IsolationRecord, isolation_json, read_isolation
from hypothesis import given
from hypothesis import strategies as st

from .simulated_job import Job, hangs_unless, plan

WANDB = {"wandb": ("offline", "off")}


def schema() -> Any:
    file = importlib.resources.files("hangbisect") / "data" / "isolation.schema.json"
    return json.loads(file.read_text(encoding="utf-8"))


def isolation(**changes: Any) -> Isolation:
    return Job(hangs_unless(WANDB)).isolate(plan(**changes))


@pytest.mark.parametrize(
    "found",
    [
        isolation(),
        isolation(only=("strategy",)),
        isolation(describe=True),
        Job(lambda setting, number: "other").isolate(plan()),
        Job(lambda setting, number: "pass").isolate(plan()),
        Isolation("interrupted", ("python",), (), 0.0),
    ],
    ids=lambda found: found.outcome,
)
def test_what_is_written_is_as_the_schema_says(found: Isolation) -> None:
    jsonschema.validate(isolation_json(found), schema())


def test_all_that_is_kept_on_the_way_is_as_the_schema_says() -> None:
    job = Job(hangs_unless(WANDB))
    job.isolate(plan())
    for kept in job.kept:
        jsonschema.validate(isolation_json(kept), schema())


def test_trials_are_read_as_they_were(tmp_path: Path) -> None:
    found = isolation(options={"only": [], "without": []})
    record = IsolationRecord(tmp_path / "iso")
    record.write(found)
    record.report(found)
    recorded = read_isolation(tmp_path / "iso")
    assert recorded.trials == found.trials
    assert recorded.command == found.command
    assert recorded.options["masked"] is False
    assert sorted(path.name for path in record.folder.iterdir()) == ["isolation.json", "report.md"]


def test_a_secret_in_the_command_is_not_written(tmp_path: Path) -> None:
    secret, token = "abcdef0123456789", f"hf_{'a1' * 12}"
    command = ("torchrun", "train.py", "--api-key", secret)
    why = f"crash: no such key {secret}, {token}"
    trial = Trial(1, {}, "hang", "hang", 1.0, command, {"WANDB_API_KEY": secret}, "x", why)
    pasted = f"WANDB_API_KEY={secret} {' '.join(command)}"
    found = replace(isolation(), command=command, paste=pasted, next=pasted, trials=(trial,))
    found = replace(found, outcome="not_isolated", why=f"as you run it: {why}")
    record = IsolationRecord(tmp_path)
    record.write(found)
    record.report(found)
    for file in tmp_path.iterdir():
        assert secret not in file.read_text(), file
        assert token not in file.read_text(), file
    assert "--api-key" in (tmp_path / "report.md").read_text()
    assert read_isolation(tmp_path).is_masked


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": 2}', '{"schema": 1, "trials": 3}'])
def test_what_no_isolation_wrote_is_said_in_a_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "isolation.json").write_text(text)
    with pytest.raises(UsageError, match=r"isolation\.json"):
        read_isolation(tmp_path)


def test_a_folder_without_an_isolation_is_said_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_isolation(tmp_path / "nothing")


@given(st.data())
def test_a_file_that_was_changed_is_read_or_refused(data: st.DataObject) -> None:
    text = json.dumps(isolation_json(isolation(options={"only": [], "without": []})))
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start, min(len(text), start + 40)))
    changed = text[:start] + data.draw(st.text(max_size=5)) + text[end:]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "isolation.json").write_text(changed, encoding="utf-8", errors="replace")
        with contextlib.suppress(UsageError):  # a sentence, and never another error
            read_isolation(Path(folder))
