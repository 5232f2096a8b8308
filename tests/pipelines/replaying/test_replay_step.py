"""Each input through a module, one after the other."""

from __future__ import annotations

import contextlib
import importlib
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hangbisect.base.errors import UsageError
from hangbisect.base.pipeline import find_pipeline
from hangbisect.base.place import find_place
from hangbisect.captures.capture_file import INPUTS, Record, TensorCopies, encode_file, encode_value
from hangbisect.captures.reading import list_files, outputs_beside
from hangbisect.pipelines.module_steps import ReadyModule
from hangbisect.pipelines.replay import replay
from hangbisect.pipelines.replay_inputs import ChosenInputs
from hangbisect.rank.arguments import parse_walk_arguments


class Twice(torch.nn.Module):
    """Fails for negative inputs."""

    def forward(self, rows: Any) -> Any:
        """Return twice the input."""
        if (rows < 0).any():
            raise ValueError("a negative input\nof several lines")
        return rows * 2.0


def write(path: Path, value: Any, kind: Any = "inputs", raised: str = "") -> None:
    kept = TensorCopies()
    whole = {"args": (value,), "kwargs": {}} if kind == "inputs" else value
    tree = encode_value(whole, kept.keep)
    record = Record(kind, "Twice", "net:Twice", 0, 1, "n01", 7, 1e9, False, False, tree, raised)
    path.write_bytes(encode_file(record, kept))


def captures(folder: Path, *values: float) -> list[Path]:
    """Write an input of each value, and the right output beside it; return the files."""
    paths = [folder / f"{number}{INPUTS}" for number in range(len(values))]
    for path, value in zip(paths, values, strict=True):
        write(path, torch.tensor([value]))
        write(Path(outputs_beside(str(path))), torch.tensor([value * 2.0]), "outputs")
    return paths


def context(folder: Path, paths: list[Path], *words: str, forwards: int = 0, ranks: int = 1) -> Any:
    """Return what the step sees of a rank; what it says is in `told`."""
    net, told, phases = Twice(), list[str](), list[str]()
    calls = list_files([str(path) for path in paths]).captures
    ready = ReadyModule(
        net, net, torch.device("cpu"), None, lambda loss: loss.backward(), contextlib.nullcontext
    )
    chosen = ChosenInputs(calls, forwards or len(calls))
    return SimpleNamespace(
        args=parse_walk_arguments(["--pipeline", "replay", *words], find_place({}), {})[0],
        place=SimpleNamespace(rank=0, world_size=ranks),
        products={"inputs": chosen, "ready": ready, "distributed": False},
        step=find_pipeline("replay").table[-1],
        run_dir=str(folder / "run"),
        not_exercised=[],
        told=told,
        say=told.append,
        phases=phases,
        phase=phases.append,
        pulse=lambda number: None,
        about_to=lambda *words, **more: None,
        imports=importlib.import_module,
    )


def saved(here: Any) -> Any:
    return json.loads((Path(here.run_dir) / "logs" / "replay-rank0.json").read_text())


def test_each_input_is_called_and_compared(tmp_path: Path) -> None:
    here = context(tmp_path, captures(tmp_path, 1.0, 2.0))
    results = replay(here)
    assert [(one.name, one.difference, one.first) for one in results] == [
        ("0", 0.0, True),
        ("1", 0.0, False),
    ]
    assert here.phases == ["first_input", "first_forward", "steady", "teardown"]
    assert [one["difference"] for one in saved(here)["inputs"]] == [0.0, 0.0]


def test_forwards_for_the_sake_of_other_ranks_are_no_results(tmp_path: Path) -> None:
    here = context(tmp_path, captures(tmp_path, 1.0, 2.0), forwards=5, ranks=2)
    assert [one.name for one in replay(here)] == ["0", "1"]


@pytest.mark.parametrize("ranks", [1, 2])
def test_what_stands_in_for_an_input_that_cannot_be_read_is_compared_with_nothing(
    ranks: int, tmp_path: Path
) -> None:
    paths = captures(tmp_path, 1.0, 5.0, 2.0)
    here = context(tmp_path, paths, "--tolerance", "1e-6", ranks=ranks)
    paths[1].write_bytes(paths[1].read_bytes()[:-1])
    assert [(one.name, one.difference) for one in replay(here)] == [("0", 0.0), ("2", 0.0)]
    assert here.not_exercised == [f"{paths[1].name} (left out)"]


def test_where_none_can_be_read_that_is_the_error(tmp_path: Path) -> None:
    paths = captures(tmp_path, 1.0)
    here = context(tmp_path, paths)
    paths[0].write_bytes(b"cut")
    with pytest.raises(UsageError, match=r"^none of the inputs could be read: .*0\.inputs"):
        replay(here)


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_positional_argument_that_was_not_kept_is_named_with_its_class(
    ranks: int, tmp_path: Path
) -> None:
    paths = captures(tmp_path, 1.0)
    write(paths[0], object())
    here = context(tmp_path, paths, ranks=ranks)
    with pytest.raises(UsageError, match=r"its argument 0 has a builtins\.object, which was not"):
        replay(here)


def test_an_input_that_fails_is_named_in_the_error_and_in_the_table(tmp_path: Path) -> None:
    paths = captures(tmp_path, 1.0, -1.0, 2.0)
    here = context(tmp_path, paths)
    with pytest.raises(ValueError, match="a negative input") as got:
        replay(here)
    assert got.value.__notes__ == [f"With input 2 of 3: {paths[1]}"]
    assert [one["raised"] for one in saved(here)["inputs"]] == ["", "ValueError: a negative input"]


def test_with_keep_going_the_others_are_done_before_it_fails(tmp_path: Path) -> None:
    here = context(tmp_path, captures(tmp_path, -1.0, 1.0, -2.0), "--keep-going")
    with pytest.raises(RuntimeError, match=r"^input 1 of 3 \(0\): ValueError: .*; and 1 more$"):
        replay(here)
    assert [bool(one["raised"]) for one in saved(here)["inputs"]] == [True, False, True]


def test_more_than_the_tolerance_is_an_error_after_all_are_done(tmp_path: Path) -> None:
    paths = captures(tmp_path, 1.0, 2.0)
    write(Path(outputs_beside(str(paths[0]))), torch.tensor([2.5]), "outputs")
    assert replay(context(tmp_path, paths, "--tolerance", "0.5"))[0].difference == 0.5
    here = context(tmp_path, paths, "--tolerance", "0.4")
    with pytest.raises(RuntimeError, match=r"input 1 of 2 \(0\) differs by 0\.5 in its output"):
        replay(here)
    assert len(saved(here)["inputs"]) == 2


def test_an_output_that_cannot_be_compared_is_told_once_and_keeps_no_tolerance(
    tmp_path: Path,
) -> None:
    paths = captures(tmp_path, 1.0, 2.0)
    for path in paths:
        write(Path(outputs_beside(str(path))), torch.ones(3), "outputs")
    here = context(tmp_path, paths)
    assert [one.difference for one in replay(here)] == [None, None]
    assert sum("not compared, for it is of another shape" in line for line in here.told) == 1
    words = r"^input 1 of 2 \(0\) cannot be compared.*the output; and 1 more"
    with pytest.raises(RuntimeError, match=words):
        replay(context(tmp_path, paths, "--tolerance", "1.0"))


def test_a_tolerance_with_which_nothing_is_compared_is_an_error(tmp_path: Path) -> None:
    paths, empty = captures(tmp_path, 1.0, 2.0), tmp_path / "empty"
    empty.mkdir()
    words = ("--outputs", str(empty))
    here = context(tmp_path, paths, *words)
    assert [one.difference for one in replay(here)] == [None, None]
    assert [t for t in here.told if "Not compared" in t] == [
        f"Not compared: {empty} has no outputs of 0"
    ]
    with pytest.raises(
        UsageError, match=r"--tolerance 1: nothing was compared, for .*empty has no"
    ):
        replay(context(tmp_path, paths, *words, "--tolerance", "1"))
    for path in paths:
        write(Path(outputs_beside(str(path))), None, "outputs")
    with pytest.raises(RuntimeError, match="in one of the two outputs alone: the output; and 1"):
        replay(context(tmp_path, paths, "--tolerance", "1"))


class Nothing(torch.nn.Module):
    """Returns nothing where its input is negative."""

    def forward(self, rows: Any) -> Any:
        """Return the input, or None."""
        return None if (rows < 0).any() else rows


def test_an_output_without_tensors_is_within_every_tolerance(tmp_path: Path) -> None:
    paths = captures(tmp_path, 0.0, -1.0)
    write(Path(outputs_beside(str(paths[1]))), None, "outputs")
    here = context(tmp_path, paths, "--tolerance", "1e-6")
    ready, net = here.products["ready"], Nothing()
    here.products["ready"] = replace(ready, module=net, call=net)
    assert [one.difference for one in replay(here)] == [0.0, None]


@pytest.mark.parametrize("words", [(), ("--keep-going",)], ids=" ".join)
def test_a_backward_of_what_has_no_gradient_is_the_command_line_s_fault(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    here = context(tmp_path, captures(tmp_path, 1.0, 2.0), "--backward", *words)
    with pytest.raises(UsageError, match="nothing that the module returned has a gradient"):
        replay(here)


def test_outputs_of_one_run_are_compared_with_in_the_next(tmp_path: Path) -> None:
    paths, kept = captures(tmp_path, 1.0), str(tmp_path / "kept")
    write(Path(outputs_beside(str(paths[0]))), torch.tensor([9.0]), "outputs")
    assert replay(context(tmp_path, paths, "--save-outputs", kept))[0].difference == 7.0
    assert replay(context(tmp_path, paths, "--outputs", kept))[0].difference == 0.0


def test_a_forward_that_raised_before_has_nothing_to_compare_with(tmp_path: Path) -> None:
    (path,) = captures(tmp_path, 1.0)
    write(Path(outputs_beside(str(path))), None, "outputs", raised="ValueError: no")
    here = context(tmp_path, [path])
    assert replay(here)[0].difference is None
    assert "0: its forward raised ValueError: no before" in here.told


def test_where_no_input_can_be_made_the_module_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no input can be made for Twice: no layer .*'rows'"):
        replay(context(tmp_path, [], forwards=1))


def test_another_stands_in_where_a_ranks_first_input_cannot_be_read(tmp_path: Path) -> None:
    paths = captures(tmp_path, 5.0, 1.0)
    here = context(tmp_path, paths, ranks=2)
    called: list[float] = []
    here.products["ready"].module.register_forward_pre_hook(
        lambda module, args: called.append(float(args[0]))
    )
    paths[0].write_bytes(paths[0].read_bytes()[:-1])
    assert [one.name for one in replay(here)] == ["1"]
    assert called == [1.0, 1.0]
    assert here.not_exercised == [f"{paths[0].name} (left out)"]
