"""What forwards returned, kept and read again."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

import pytest
import torch
from hangbisect.captures.reading import Unreadable
from hangbisect.pipelines.replay_inputs import MADE_INPUT, keep_output, load_earlier_output

NET = torch.nn.Linear(3, 2).eval()


def test_what_is_kept_is_what_a_later_run_is_compared_with(tmp_path: Path) -> None:
    folder = str(tmp_path / "new" / "outputs")
    logits = torch.rand(2, 3, requires_grad=True)
    keep_output(OrderedDict(logits=logits, n=3), folder, "Actor-rank0-1", NET, 1, 4)
    found = load_earlier_output("/elsewhere/Actor-rank0-1.inputs.safetensors", folder)
    assert found is not None
    assert torch.equal(found.value["logits"], logits)
    assert found.value["n"] == 3
    record = found.record
    assert (record.kind, record.rank, record.world_size) == ("outputs", 1, 4)
    assert (record.name, record.training, record.raised) == ("Linear", False, "")
    assert record.module == "torch.nn.modules.linear:Linear"


def test_a_later_one_takes_the_place_of_an_earlier_one(tmp_path: Path) -> None:
    for value in (1.0, 2.0):
        keep_output(torch.tensor(value), str(tmp_path), MADE_INPUT, NET, 0, 1)
    found = load_earlier_output(MADE_INPUT, str(tmp_path))
    assert found is not None
    assert found.value.item() == 2.0
    assert [path.name for path in tmp_path.iterdir()] == ["made.outputs.safetensors"]


def test_without_a_folder_it_is_compared_with_what_was_captured(tmp_path: Path) -> None:
    captured, other = tmp_path / "captures", tmp_path / "other"
    keep_output(torch.tensor(1.0), str(captured), "one", NET, 0, 1)
    keep_output(torch.tensor(2.0), str(other), "one", NET, 0, 1)
    path = str(captured / "one.inputs.safetensors")
    beside, named = load_earlier_output(path, None), load_earlier_output(path, str(other))
    assert beside is not None
    assert named is not None
    assert (beside.value.item(), named.value.item()) == (1.0, 2.0)


def test_the_folder_that_is_named_is_the_only_one(tmp_path: Path) -> None:
    keep_output(torch.tensor(1.0), str(tmp_path), "one", NET, 0, 1)
    path = str(tmp_path / "one.inputs.safetensors")
    assert load_earlier_output(path, str(tmp_path / "other")) is None
    assert load_earlier_output(str(tmp_path / "two.inputs.safetensors"), None) is None


def test_a_file_that_was_cut_is_named(tmp_path: Path) -> None:
    keep_output(torch.tensor(1.0), str(tmp_path), "one", NET, 0, 1)
    file = tmp_path / "one.outputs.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(Unreadable, match=r"one\.outputs\.safetensors: truncated"):
        load_earlier_output("one.inputs.safetensors", str(tmp_path))
