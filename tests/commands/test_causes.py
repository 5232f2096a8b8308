"""`hangbisect causes`: the list, and one cause explained."""

from __future__ import annotations

import json

import pytest
from hangbisect.base.errors import UsageError
from hangbisect.commands.lists import causes as run
from hangbisect.diagnosis.causes.catalogue import CAUSES, FAMILIES


def said(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert run(list(argv)) == 0
    return capsys.readouterr().out


def test_the_list_has_every_cause_under_its_family(capsys: pytest.CaptureFixture[str]) -> None:
    lines = said(capsys).splitlines()
    first = [line.split()[0] for line in lines if line.startswith("  ")]
    assert first == [known.id for known in CAUSES]
    assert [line for line in lines if line and line[0] != " "] == [f.title for f in FAMILIES]


def test_each_can_be_explained(capsys: pytest.CaptureFixture[str]) -> None:
    for known in CAUSES:
        text = said(capsys, known.id)
        assert text.startswith(f"{known.id}: ")
        assert "What avoids it" in text
        assert "{" not in text, known.id


def test_signs_say_what_they_are_for(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "service-silent")
    assert "A rank waits in W&B's code" in text
    assert "(makes it likelier)" in text
    assert "(rules it out)" in said(capsys, "store-key-missing")
    assert "https://github.com/wandb/wandb/issues/5017" in text
    assert "--wandb offline" in text


def test_as_json_it_is_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    everything = json.loads(said(capsys, "--json"))
    assert [one["id"] for one in everything] == [known.id for known in CAUSES]
    one = json.loads(said(capsys, "rank-left", "--json"))
    assert one == next(entry for entry in everything if entry["id"] == "rank-left")
    assert one["signs"][0]["kind"] == "needed"


def test_a_wrong_name_gets_the_nearest_one() -> None:
    with pytest.raises(UsageError, match="did you mean 'service-silent'"):
        run(["service-slent"])
