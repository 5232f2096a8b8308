"""Weights of a file, into a module; nothing in the file is executed."""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hangbisect.base.errors import UsageError
from hangbisect.pipelines.module_steps import weights
from safetensors.torch import save_file


class Net(torch.nn.Module):
    """Has two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(2, 3)
        self.second = torch.nn.Linear(3, 1)


class Hostile:
    """Is executed by whoever unpickles it without care."""

    def __init__(self, command: str) -> None:
        self._command = command

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (self._command,)


def context(made: Any, path: object = None, save: object = None, rank: int = 0) -> Any:
    """Return what the step sees of a rank; what it says is in `told`."""
    told: list[str] = []

    @contextlib.contextmanager
    def rank0_only(what: str) -> Iterator[bool]:
        yield rank == 0

    return SimpleNamespace(
        products={"module": made},
        args=SimpleNamespace(
            weights=path and str(path), save_module=save and str(save), use={}, model=None
        ),
        told=told,
        say=told.append,
        about_to=lambda *words: None,
        imports=importlib.import_module,
        rank0_only=rank0_only,
    )


def same(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    ours, theirs = one.state_dict(), other.state_dict()
    return all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_without_a_file_the_module_is_as_it_was_built() -> None:
    net = Net()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    here = context(net)
    assert weights(here) is net
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
    assert here.told == ["Weights: those that the module was built with"]


def test_a_file_of_safetensors_is_loaded(tmp_path: Path) -> None:
    net, other, path = Net(), Net(), tmp_path / "net.safetensors"
    save_file(other.state_dict(), path)
    here = context(net, path)
    assert weights(here) is net
    assert same(net, other)
    assert here.told == [f"Weights: 4 of 4 from {path}"]


@pytest.mark.parametrize("name", ["net.pt", "net.bin", "net"])
def test_a_state_dict_of_torchs_own_is_loaded(name: str, tmp_path: Path) -> None:
    net, other, path = Net(), Net(), tmp_path / name
    torch.save(other.state_dict(), path)
    assert same(weights(context(net, path)), other)


def test_what_was_saved_by_one_run_is_loaded_by_the_next(tmp_path: Path) -> None:
    net, other = Net(), Net()
    assert weights(context(other, save=tmp_path / "saved")) is other
    assert same(weights(context(net, tmp_path / "saved")), other)


def test_weights_that_are_tied_are_in_it_under_one_name(tmp_path: Path) -> None:
    net, other = (torch.nn.ModuleDict({"embed": Net(), "head": Net()}) for _ in range(2))
    for one in (net, other):
        one["head"].first.weight = one["embed"].first.weight
    weights(context(other, save=tmp_path / "saved"))
    here = context(net, tmp_path / "saved")
    weights(here)
    assert same(net, other)
    assert here.told == [f"Weights: 8 of 8 from {tmp_path / 'saved'}"]


def test_rank_0_alone_saves(tmp_path: Path) -> None:
    weights(context(Net(), save=tmp_path / "saved", rank=1))
    assert not (tmp_path / "saved").exists()


@pytest.mark.parametrize("how", ["torch", "an old torch", "pickle", "within a state dict"])
def test_what_names_a_command_is_refused_and_not_executed(how: str, tmp_path: Path) -> None:
    executed, path = tmp_path / "executed", tmp_path / "net.pt"
    hostile = Hostile(f"touch {executed}")
    if how == "pickle":
        path.write_bytes(pickle.dumps(hostile))
    elif how == "within a state dict":
        torch.save({**Net().state_dict(), "first.bias": hostile}, path)
    else:
        torch.save(hostile, path, _use_new_zipfile_serialization=how == "torch")
    net = Net()
    with pytest.raises(UsageError, match=r"--weights .*net\.pt cannot be loaded: ") as got:
        weights(context(net, path))
    assert "tensors alone" in got.value.help
    assert not executed.exists()


def test_nor_is_it_in_a_folder(tmp_path: Path) -> None:
    executed, folder = tmp_path / "executed", tmp_path / "model"
    folder.mkdir()
    torch.save(Hostile(f"touch {executed}"), folder / "pytorch_model.bin")
    with pytest.raises(UsageError, match=r"it holds posix\.system, and only tensors"):
        weights(context(Net(), folder))
    assert not executed.exists()


def test_a_whole_module_is_refused_by_its_class(tmp_path: Path) -> None:
    torch.save(Net(), tmp_path / "net.pt")
    with pytest.raises(UsageError) as got:
        weights(context(Net(), tmp_path / "net.pt"))
    assert "it holds" in str(got.value)
    assert "Net, and only tensors are taken" in str(got.value)
    assert "\x1b" not in str(got.value)


def test_a_file_with_none_of_the_modules_names_is_one_error(tmp_path: Path) -> None:
    path = tmp_path / "other.safetensors"
    save_file({f"module.{name}": value for name, value in Net().state_dict().items()}, path)
    here = context(Net(), path)
    with pytest.raises(UsageError, match="has none of the 4 weights of Net: it has module") as got:
        weights(here)
    assert "first.weight, first.bias, second.weight and 1 other" in str(got.value)
    assert here.told == []


def test_what_is_missing_and_what_is_too_much_is_told(tmp_path: Path) -> None:
    net, other, path = Net(), Net(), tmp_path / "part.safetensors"
    kept = net.second.weight.detach().clone()
    save_file({**other.first.state_dict(prefix="first."), "third": torch.ones(1)}, path)
    here = context(net, path)
    weights(here)
    assert torch.equal(net.first.weight, other.first.weight)
    assert torch.equal(net.second.weight, kept)
    assert here.told == [
        f"Weights: 2 of 4 from {path}",
        "Not in it, and as they were built: second.weight, second.bias",
        "In it, and of nothing in the module: third",
    ]


def test_weights_of_another_shape_are_named(tmp_path: Path) -> None:
    path = tmp_path / "net.safetensors"
    save_file({**Net().state_dict(), "first.weight": torch.ones(7, 7)}, path)
    with pytest.raises(UsageError, match=r"cannot be loaded: RuntimeError: .*first\.weight") as got:
        weights(context(Net(), path))
    assert "\n" not in str(got.value)


@pytest.mark.parametrize("content", [b"", b"text\n" * 100, b"\x80\x04]\x94."], ids=repr)
@pytest.mark.parametrize("name", ["net.pt", "net.safetensors"])
def test_what_is_no_file_of_weights_is_one_error(content: bytes, name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError, match=f"{name} cannot be loaded: "):
        weights(context(Net(), tmp_path / name))


def test_a_folder_without_a_model_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be loaded: ValueError"):
        weights(context(Net(), tmp_path))
