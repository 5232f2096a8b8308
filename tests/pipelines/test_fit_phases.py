"""The phases of fit, in a real Trainer on one process."""

from __future__ import annotations

import importlib.util
import warnings
from typing import Any

import pytest
from hangbisect.base.pipeline import find_pipeline

# Imported in a test alone: each worker reads this file, and Lightning takes seconds.
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("pytorch_lightning") is None, reason="no Lightning"
)
PHASES = [phase.name for phase in find_pipeline("startup").table[-1].phases]


class Voice:
    """A context that writes down what it is told."""

    def __init__(self) -> None:
        self.step = find_pipeline("startup").table[-1]
        self.phases: list[str] = []
        self.pulses: list[int] = []
        self.calls: list[str] = []

    def phase(self, name: str) -> None:
        self.phases.append(name)

    def pulse(self, step: int) -> None:
        self.pulses.append(step)

    def about_to(self, call: str, detail: str = "") -> None:
        self.calls.append(call)

    def say(self, text: str) -> None:
        pass


def trained(voice: Voice, world_size: int, tmp_path: object, seen: list[tuple[str, str]]) -> None:
    """Train two steps; `seen` gets (hook, phase announced by then)."""
    import pytorch_lightning as pl
    import torch
    from hangbisect.pipelines.fit_phases import announce_phases
    from hangbisect.pipelines.lightning_modules import LLMModule

    class Loss(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(1))

        def forward(self, x: Any) -> Any:
            seen.append(("forward", voice.phases[-1]))
            return type("Output", (), {"loss": (self.weight * x).mean()})

    class Data(pl.LightningDataModule):
        def prepare_data(self) -> None:
            seen.append(("prepare_data", voice.phases[-1]))

        def setup(self, stage: str) -> None:
            seen.append(("setup", voice.phases[-1]))

        def train_dataloader(self) -> Any:
            seen.append(("train_dataloader", voice.phases[-1]))
            return torch.utils.data.DataLoader([{"x": torch.ones(2)}] * 2, batch_size=None)

    trainer = pl.Trainer(
        accelerator="cpu",
        devices=1,
        max_steps=2,
        max_epochs=-1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
    )
    context: Any = voice
    announce_phases(trainer, context, world_size)
    voice.phase("launch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer.fit(LLMModule(Loss()), Data())


def test_each_phase_is_announced_once_and_before_what_belongs_to_it(tmp_path: object) -> None:
    voice, seen = Voice(), list[tuple[str, str]]()
    trained(voice, 1, tmp_path, seen)
    assert voice.phases == PHASES
    assert seen == [
        ("prepare_data", "prepare_data"),
        ("setup", "setup"),
        ("train_dataloader", "first_batch"),
        ("forward", "first_backward"),
        ("forward", "steady"),
    ]
    assert voice.pulses == [1, 2]


def test_fit_without_the_process_group_it_should_have_is_refused(tmp_path: object) -> None:
    with pytest.raises(RuntimeError, match=r"the job has 2 ranks, .* none"):
        trained(Voice(), 2, tmp_path, [])
