"""The table of toggles: what can be changed about a run, from as it is run to safest.

Arguments, their help, what a verdict says to try and what a search turns off all come from here.
To add a toggle, add an entry, and let the step that it belongs to read its argument.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Toggle:
    """A named setting of one component.

    `accepts`: "choice": the values are all there are; "count": any whole number from 0;
    "strategy": any strategy that Lightning registers. A remedy is a change that one can live
    with; a probe makes nearly every hang vanish and so describes more than it heals.
    """

    name: str
    component: str
    flag: str
    values: tuple[str, ...]  # from as one runs it to safest
    default: str | None  # None: left as the environment has it
    kind: Literal["remedy", "probe"]
    read: Literal["start", "import", "run"]  # when its value is looked at for the last time
    cost: str  # what one gives up with the safest values
    help: str
    accepts: Literal["choice", "count", "strategy"] = "choice"
    environment: tuple[tuple[str, str, str], ...] = ()  # (value, variable, its value): in scripts
    needs: tuple[str, ...] = ()  # without one of these flags it changes nothing

    @property
    def dest(self) -> str:
        """The attribute of the parsed arguments that has the value."""
        return self.flag.lstrip("-").replace("-", "_")


TOGGLES = (
    Toggle(
        name="wandb",
        component="wandb",
        flag="--wandb",
        values=("every-rank", "logger", "rank0", "offline", "off"),
        default="logger",
        kind="remedy",
        read="run",
        cost="offline: no live charts until `wandb sync`; off: none at all",
        help="who starts W&B: wandb.init on every rank; WandbLogger on every rank, as Lightning "
        "users do (starts it on rank 0); rank 0 alone; the same offline; nobody",
        environment=(("offline", "WANDB_MODE", "offline"), ("off", "WANDB_MODE", "disabled")),
    ),
    Toggle(
        name="strategy",
        component="strategy",
        flag="--strategy",
        values=("auto", "ddp"),
        default="auto",
        kind="remedy",
        read="run",
        cost="a larger model may no longer fit",
        help="Lightning's strategy: auto, ddp, or any other that it registers",
        accepts="strategy",
    ),
    Toggle(
        name="make_logs_dir",
        component="filesystem",
        flag="--make-logs-dir",
        values=("all", "rank0"),
        default="all",
        kind="remedy",
        read="run",
        cost="the others wait for rank 0",
        help="who makes the logs directory: every rank, or rank 0 while the others wait",
    ),
    Toggle(
        name="hub",
        component="hub",
        flag="--hub",
        values=("online", "rank0-first", "offline"),
        default="online",
        kind="remedy",
        read="import",
        cost="offline: what is loaded must be in the cache",
        help="who asks the Hugging Face hub: every rank at once; rank 0 first, the others from "
        "its cache; nobody (HF_HUB_OFFLINE)",
        environment=(("offline", "HF_HUB_OFFLINE", "1"),),
        needs=("--tokenizer", "--model"),
    ),
    Toggle(
        name="num_workers",
        component="data",
        flag="--num-workers",
        values=("0",),
        default="0",
        kind="remedy",
        read="run",
        cost="0: batches are made by the rank itself, more slowly",
        help="worker processes of each rank's DataLoader",
        accepts="count",
    ),
    Toggle(
        name="worker_start",
        component="data",
        flag="--worker-start",
        values=("fork", "forkserver", "spawn"),
        default="fork",
        kind="remedy",
        read="run",
        cost="each worker imports what it needs: seconds at the start of an epoch",
        help="how DataLoader workers are started",
        needs=("--num-workers",),
    ),
    Toggle(
        name="tokenizers_parallelism",
        component="data",
        flag="--tokenizers-parallelism",
        values=("on", "off"),
        default=None,
        kind="remedy",
        read="run",
        cost="tokenizing uses one core",
        help="sets TOKENIZERS_PARALLELISM; left as the environment has it by default",
        environment=(
            ("on", "TOKENIZERS_PARALLELISM", "true"),
            ("off", "TOKENIZERS_PARALLELISM", "false"),
        ),
    ),
    Toggle(
        name="backend",
        component="strategy",
        flag="--backend",
        values=("auto", "nccl", "gloo"),
        default="auto",
        kind="probe",
        read="run",
        cost="gloo is far slower between GPUs",
        help="the process group's backend; auto: Lightning's choice for the accelerator",
    ),
    Toggle(
        name="accelerator",
        component="accelerator",
        flag="--accelerator",
        values=("auto", "gpu", "cpu"),
        default="auto",
        kind="probe",
        read="run",
        cost="cpu: no GPU",
        help="what the model runs on",
    ),
    Toggle(
        name="barriers",
        component="fit",
        flag="--barriers",
        values=("off", "observe", "lockstep"),
        default="lockstep",
        kind="probe",
        read="start",
        cost="ranks wait for one another between steps",
        help="after each checkpoint: hold every rank until all are there; only write down who "
        "arrived; nothing",
    ),
)


def toggle(name: str) -> Toggle:
    """Return the toggle of that name. Raises KeyError."""
    for entry in TOGGLES:
        if entry.name == name:
            return entry
    raise KeyError(name)
