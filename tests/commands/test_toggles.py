"""`hangbisect toggles`: the table, and one toggle explained."""

from __future__ import annotations

import json

import pytest
from hangbisect.base import words
from hangbisect.base.errors import UsageError
from hangbisect.commands.lists import toggles as run
from hangbisect.toggles.table import TOGGLES
from hangbisect.toggles.toggle import Toggle


def said(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert run(list(argv)) == 0
    return capsys.readouterr().out


def test_the_list_has_each_toggle_once_in_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(words, "terminal_width", lambda: 200)
    lines = said(capsys).splitlines()
    names = [line.split()[0] for line in lines if line.startswith("  ") and line[2] != " "]
    assert sorted(names) == sorted(entry.name for entry in TOGGLES)
    assert max(len(line) for line in lines) <= 80


def test_on_a_narrow_terminal_it_wraps(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(words, "terminal_width", lambda: 60)
    assert max(len(line) for line in said(capsys).splitlines()[1:-1]) <= 60


@pytest.mark.parametrize("entry", TOGGLES, ids=lambda entry: entry.name)
def test_each_can_be_explained(entry: Toggle, capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, entry.name)
    assert text.startswith(f"{entry.name}: ")
    together = " ".join(text.split())
    for word in (*entry.values, entry.cost, entry.read_how, entry.flag, entry.variable):
        assert word in together
    assert max(len(line) for line in text.splitlines()) <= 80


def test_one_is_found_by_its_flag_and_by_its_variable(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "make_logs_dir") == said(capsys, "make-logs-dir")
    assert said(capsys, "nccl_p2p_disable") == said(capsys, "NCCL_P2P_DISABLE")


def test_json_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    data = json.loads(said(capsys, "--json"))
    assert [row["name"] for row in data] == [entry.name for entry in TOGGLES]
    one = json.loads(said(capsys, "wandb", "--json"))
    assert one == data[0]
    assert one["environment"][0] == {"value": "offline", "variable": "WANDB_MODE", "to": "offline"}


def test_a_toggle_that_there_is_not_is_named_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"no toggle 'wanbd'; did you mean 'wandb'"):
        run(["wanbd"])
