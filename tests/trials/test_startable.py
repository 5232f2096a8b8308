"""Whether a program can be started, known before it is tried."""

from __future__ import annotations

from pathlib import Path

import pytest
from hangbisect.base.errors import CannotStart
from hangbisect.trials.launch import check_program


def test_what_is_there_can_be_started(tmp_path: Path) -> None:
    (tmp_path / "here").write_text("")
    (tmp_path / "here").chmod(0o755)
    check_program("here", {"PATH": f"/nowhere:{tmp_path}"})
    check_program(str(tmp_path / "here"), {"PATH": ""})


@pytest.mark.parametrize(
    ("program", "status", "why"),
    [
        ("nosuchcommand", 127, "there is no such program"),
        ("", 127, "there is no such program"),
        ("./no/such", 127, "there is no such program"),
        ("text", 126, "it may not be executed"),
        ("/tmp", 126, "it may not be executed"),
    ],
)
def test_what_cannot_be_started_has_the_status_of_a_shell(
    program: str, status: int, why: str, tmp_path: Path
) -> None:
    (tmp_path / "text").write_text("")
    with pytest.raises(CannotStart) as raised:
        check_program(program, {"PATH": str(tmp_path)})
    assert str(raised.value) == f"{program!r} cannot be started: {why}"
    assert raised.value.status == status
