"""The model that ships: it is in several shards, and each rank makes the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hangbisect.pipelines import model_steps
from hangbisect.pipelines.generation_plan import find_checkpoint

torch = pytest.importorskip("torch")
huggingface_hub = pytest.importorskip("huggingface_hub")


@pytest.fixture(scope="module")
def transformers() -> Any:
    """Not imported when this file is read: each worker reads it, and one has these tests."""
    return pytest.importorskip("transformers")


def test_it_has_several_shards_that_hold_each_of_its_weights(
    tmp_path: Path, transformers: Any
) -> None:
    model_steps.write_small_model(str(tmp_path), transformers, torch, huggingface_hub)
    found = find_checkpoint(str(tmp_path))
    assert found is not None
    assert len(found.files) > 3
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    assert set(found.weights) == set(model.state_dict())
    assert found.bytes > sum(one.numel() * 4 for one in model.parameters())


def test_each_rank_makes_the_same_weights_and_leaves_chance_as_it_was(
    tmp_path: Path, transformers: Any
) -> None:
    first, second = tmp_path / "0", tmp_path / "1"
    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    for folder in (first, second):
        model_steps.write_small_model(str(folder), transformers, torch, huggingface_hub)
    assert torch.equal(torch.rand(1), expected)
    loaded = [transformers.AutoModelForCausalLM.from_pretrained(one) for one in (first, second)]
    pairs = zip(*(model.state_dict().items() for model in loaded), strict=True)
    assert all(one == other and torch.equal(w, v) for (one, w), (other, v) in pairs)


def test_a_folder_without_weights_has_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert find_checkpoint(str(tmp_path)) is None


def test_weights_of_one_file_need_no_index(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"12345")
    (tmp_path / "pytorch_model.bin").write_bytes(b"1")
    found = find_checkpoint(str(tmp_path))
    assert found is not None
    assert (found.files, found.weights) == ({"model.safetensors": 5}, {})
