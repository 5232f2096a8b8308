"""The script on the page that replays captures does so, as it stands there."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import hangbisect
import pytest
import torch
from hangbisect.captures import capture_file
from hangbisect.captures.capture_file import CaptureLimits

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "one-module-alone.md"
ACTOR = """
import torch

def build():
    return torch.nn.Linear(3, 2)
"""


def test_the_script_on_the_page_calls_the_module_with_each_capture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (script,) = re.findall(
        r"^```python\n(import sys\n.*?)^```", PAGE.read_text("utf-8"), re.M | re.S
    )
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "actor.py").write_text(ACTOR)
    capture_file.turn_on(str(tmp_path), CaptureLimits())
    module = hangbisect.capture(torch.nn.Linear(3, 2), folder=str(tmp_path))
    module(torch.ones(4, 3))
    module(torch.ones(5, 3))
    paths = sorted(str(path) for path in tmp_path.glob("*.inputs.safetensors"))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["replay.py", *paths])
    exec(compile(script, str(PAGE), "exec"), {})
    assert re.findall(r"^(\S+safetensors) tensor", capsys.readouterr().out, re.M) == paths
    assert len(paths) == 2
