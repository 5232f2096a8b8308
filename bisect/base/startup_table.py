"""The checkpoints of the main pipeline, everything that happens until a language model trains.

Steps of a user's script are reported under the same rows, in ranks too. So this file is in `base/`.
What is done before each checkpoint is in pipelines/startup.py.
"""

from __future__ import annotations

from dataclasses import replace

from .checkpoints import LAUNCHER, Checkpoint, Phase

# Deadlines in seconds: half a minute for what is local, minutes for what downloads, loads or
# compiles. W&B's is below its own time limit (init_timeout, 90 s), so that we see it waiting.
_PHASES = (
    Phase("launch", "fit", 60),
    Phase("process_group", "strategy", 120),
    Phase("prepare_data", "data", 600),
    Phase("setup", "data", 300),
    Phase("wrap", "strategy", 120),
    Phase("first_batch", "data", 120),
    Phase("first_backward", "fit", 300),
    Phase("first_step", "fit", 120),
    Phase("steady", "fit", None),
    Phase("teardown", "fit", 120),
)
_ROWS = (
    LAUNCHER,
    Checkpoint("script", "Script started", "interpreter", 30),
    Checkpoint("arguments", "Args parsed", "arguments", 30),
    Checkpoint("logs_directory", "Logs directory ready", "filesystem", 30),
    Checkpoint("tokenizer", "Tokenizer loaded", "hub", 300),
    Checkpoint("model", "Model created", "model", 900),
    Checkpoint("lightning_module", "LLMModule ready", "lightning", 120),
    Checkpoint("data_module", "DataModule ready", "data", 60),
    Checkpoint("accelerator", "Accelerator configured", "accelerator", 60),
    Checkpoint("wandb_logger", "WandbLogger ready", "wandb", 60, suspect=True),
    Checkpoint("memory_callback", "MemoryLoggingCallback ready", "callbacks", 30),
    Checkpoint("trainer", "Trainer ready", "trainer", 60, suspect=True),
    Checkpoint("training", "Training finished", "fit", 600, phases=_PHASES),
)
STARTUP = tuple(replace(row, number=number) for number, row in enumerate(_ROWS))
STARTUP_BY_NAME = {row.name: row for row in STARTUP}
