"""Toggles inside scripts of a user's own, with the real libraries: what the script got, and what
was told. Nothing of a script knows of it: a `sitecustomize` on its path begins it.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from hangbisect.base.variables import VARIABLE

DEADLINE = 240.0  # seconds, on a busy machine
BEGIN = """
import os, sys
from importlib.util import module_from_spec, spec_from_file_location
folder = {package!r}
spec = spec_from_file_location(
    "hangbisect", folder + "/__init__.py", submodule_search_locations=[folder]
)
sys.modules["hangbisect"] = package = module_from_spec(spec)
spec.loader.exec_module(package)
from hangbisect.rank import patches
patches.begin_patching(lambda word: os.write(2, f"told {{word}}\\n".encode()))
"""
LIGHTNING = """
import lightning.pytorch as pl, torch
from torch.utils.data import DataLoader

class Module(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, index):
        return self.layer(batch).sum()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

class Mine(pl.Callback):
    pass

loader = DataLoader(torch.ones(16, 4), batch_size=4, num_workers=2, prefetch_factor=2,
                    persistent_workers=True, multiprocessing_context="fork")
trainer = pl.Trainer(max_steps=2, accelerator="cpu", devices=1, callbacks=[Mine()], logger=False,
                     enable_checkpointing=False, enable_progress_bar=False)
trainer.fit(Module(), loader)
names = [type(one).__name__ for one in trainer.callbacks]
print(loader.num_workers, type(trainer.strategy).__name__, "Mine" in names, trainer.global_step)
"""
TRANSFORMERS = """
from transformers import LlamaConfig, LlamaForCausalLM
config = LlamaConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=1,
                     num_attention_heads=4, vocab_size=64, attn_implementation="sdpa")
LlamaForCausalLM(config).save_pretrained("model")
model = LlamaForCausalLM.from_pretrained("model", attn_implementation="sdpa")
model.gradient_checkpointing_enable()
print(model.config._attn_implementation, model.is_gradient_checkpointing)
"""
WANDB = """
import wandb
run = wandb.init(project="p", mode="offline")
run.log({"loss": 1.0})
run.finish()
print(run.disabled)
"""


@dataclass(frozen=True)
class Ended:
    out: str
    told: list[str]


Run = Callable[..., Ended]


@pytest.fixture
def run(tmp_path: Path, package: Path, start: Callable[..., subprocess.Popen[str]]) -> Run:
    """Run a script with toggles set, and return what it printed and what was told of it."""

    def run(script: str, setting: str, needs: str, **environ: str) -> Ended:
        if importlib.util.find_spec(needs) is None:
            pytest.skip(f"there is no {needs} here")
        (tmp_path / "sitecustomize.py").write_text(BEGIN.format(package=str(package)))
        (tmp_path / "train.py").write_text(script)
        own = {VARIABLE: setting, "PYTHONPATH": str(tmp_path), **environ}
        environment = {**os.environ, "WANDB_SILENT": "true", "HF_HUB_OFFLINE": "1", **own}
        process = start(sys.executable, "-P", "train.py", cwd=tmp_path, env=environment)
        out, err = process.communicate(timeout=DEADLINE)
        assert process.returncode == 0, err
        told = [line.removeprefix("told ") for line in err.splitlines() if line[:5] == "told "]
        return Ended(out.splitlines()[-1], told)

    return run


def test_a_lightning_script_gets_no_workers_ddp_and_no_callbacks(run: Run) -> None:
    ended = run(LIGHTNING, "num_workers=0,strategy=ddp,callbacks=none,wandb=?", "lightning")
    assert ended.out == "0 DDPStrategy False 2"
    assert ended.told[:3] == ["num_workers=2", "strategy=auto", "callbacks"]
    assert "wandb" not in " ".join(ended.told)


def test_a_model_gets_another_attention_and_keeps_its_activations(run: Run) -> None:
    ended = run(TRANSFORMERS, "attention=eager,gradient_checkpointing=off", "transformers")
    assert ended.out == "eager False"
    assert {"attention=sdpa", "gradient_checkpointing=on"} <= set(ended.told)


def test_only_rank_0_starts_wandb(run: Run) -> None:
    ended = run(WANDB, "wandb=rank0", "wandb", RANK="1", WORLD_SIZE="2")
    assert (ended.out, ended.told) == ("True", ["wandb=offline", "wandb:in-code"])


def test_what_is_only_asked_changes_nothing(run: Run) -> None:
    ended = run(WANDB, "wandb=?,num_workers=?", "wandb", RANK="0", WORLD_SIZE="2")
    assert (ended.out, ended.told) == ("False", ["wandb=offline", "wandb:in-code"])
