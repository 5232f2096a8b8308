"""Modules that are captured: what is written, and what stays as it is."""

from __future__ import annotations

import copy
import pickle
import sys
import time
from pathlib import Path
from typing import Any

import hangbisect
import pytest
import torch
from hangbisect.captures import capture_file
from hangbisect.captures.capture_file import CaptureLimits
from hangbisect.captures.forward_hooks import Listener
from hangbisect.captures.reading import list_folder, load


class Net(torch.nn.Module):
    """Fails for negative inputs, and changes its input in place."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 2)

    def forward(self, rows: Any, scale: float = 1.0, *, also: Any = None) -> Any:
        """Return two outputs."""
        if (rows < 0).any():
            raise ValueError("a negative input")
        result = self.linear(rows) * scale
        rows.zero_()
        return {"logits": result, "also": also}


def captured(folder: Path, on: CaptureLimits | None = None) -> Net:
    """Return a module that is captured into `folder`."""
    if on is not None:
        capture_file.turn_on(str(folder), on)
    module: Net = hangbisect.capture(Net(), folder=str(folder))
    return module


def test_nothing_is_written_while_it_is_off(tmp_path: Path) -> None:
    captured(tmp_path / "captures")(torch.ones(1, 3))
    assert not (tmp_path / "captures").exists()


def test_inputs_are_kept_as_they_were_before_the_forward_and_outputs_after(tmp_path: Path) -> None:
    module = captured(tmp_path, CaptureLimits())
    rows = torch.rand(4, 3)
    before = rows.clone()
    output = module(rows, scale=0.5, also=[rows])
    (one,) = list_folder(str(tmp_path)).captures
    (args, kwargs) = load(one.path).value
    assert torch.equal(args[0], before)
    assert kwargs["scale"] == 0.5
    assert torch.equal(kwargs["also"][0], before)
    assert one.outcome == "returned"
    kept = load(one.path.replace(".inputs.", ".outputs.")).value
    assert torch.equal(kept["logits"], output["logits"])
    assert (one.record.training, one.record.grad, one.record.rank) == (True, True, 0)
    assert one.record.module == f"{__name__}:Net"
    assert abs(one.record.at - time.time()) < 60
    assert list(dict(one.as_data())["inputs"]) == ["0", "scale", "also.0"]  # type: ignore[call-overload]  # a dict


def test_an_input_that_makes_the_forward_fail_is_kept_and_said_to(tmp_path: Path) -> None:
    module = captured(tmp_path, CaptureLimits())
    try:
        raise KeyError("the job's own")
    except KeyError:
        module(torch.ones(1, 3))  # an exception that is not forward's
    with pytest.raises(ValueError, match="a negative input"):
        module(-torch.ones(1, 3))
    returned, raised = list_folder(str(tmp_path)).captures
    assert returned.outcome == "returned"
    assert raised.outcome == "raised ValueError"
    assert torch.equal(load(raised.path).value[0][0], -torch.ones(1, 3))
    assert len(module._forward_hooks) == 0


def test_it_stops_at_the_limit_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module = captured(tmp_path, CaptureLimits(captures=2))
    for _ in range(4):
        module(torch.ones(1, 3))
    listing = list_folder(str(tmp_path))
    assert len(listing.captures) == 2
    assert [one.outcome for one in listing.captures] == ["returned", "returned"]
    assert capsys.readouterr().err.count("captures no more: it has the 2 captures") == 1


def test_what_cannot_be_written_stops_capturing_and_not_the_forward(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = captured(tmp_path, CaptureLimits())
    monkeypatch.setitem(sys.modules, "safetensors.torch", None)  # not installed
    assert module(torch.ones(1, 3))["logits"].shape == (1, 2)
    module(torch.ones(1, 3))
    assert list_folder(str(tmp_path)).captures == ()
    assert capsys.readouterr().err.count("captures no more: ModuleNotFoundError") == 1


def test_the_same_tensor_twice_and_a_view_are_kept(tmp_path: Path) -> None:
    module = captured(tmp_path, CaptureLimits())
    rows = torch.arange(6.0).view(3, 2).t()
    module(rows, also=(rows, rows[0], torch.tensor(2 + 3j).conj()))
    (one,) = list_folder(str(tmp_path)).captures
    args, kwargs = load(one.path).value
    assert torch.equal(args[0], torch.tensor([[0.0, 2, 4], [1, 3, 5]]))
    assert torch.equal(kwargs["also"][1], args[0][0])
    assert kwargs["also"][2] == 2 - 3j


def test_a_module_listens_once_and_its_copies_and_pickles_do_not(tmp_path: Path) -> None:
    module = captured(tmp_path, CaptureLimits())
    assert hangbisect.capture(module, folder=str(tmp_path)) is module
    assert len(module._forward_pre_hooks) == 1
    saved = pickle.dumps(module)
    assert b"hangbisect" not in saved.replace(__name__.encode(), b"")
    for other in (copy.deepcopy(module), pickle.loads(saved)):
        assert not any(isinstance(one, Listener) for one in other._forward_pre_hooks.values())
        other(torch.ones(1, 3))
    assert list_folder(str(tmp_path)).captures == ()


def test_what_is_compiled_is_compiled_as_without_it(tmp_path: Path) -> None:
    inner = hangbisect.capture(torch.nn.Linear(3, 2), folder=str(tmp_path / "inner"))
    outer = hangbisect.capture(
        torch.compile(torch.nn.Sequential(inner), backend="eager", fullgraph=True),
        folder=str(tmp_path / "outer"),
    )
    for place in ("inner", "outer"):
        capture_file.turn_on(str(tmp_path / place), CaptureLimits())
    outer(torch.ones(1, 3))
    assert list_folder(str(tmp_path / "inner")).captures == ()
    assert len(list_folder(str(tmp_path / "outer")).captures) == 1


def test_what_is_no_module_is_refused() -> None:
    with pytest.raises(TypeError, match=r"takes a torch\.nn\.Module, not int"):
        hangbisect.capture(3)
