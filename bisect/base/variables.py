"""Names and numbers that every Python below a watched command needs, and the words by which toggles
are applied inside a script of the user's own.

HANGBISECT_STEER="num_workers=0,strategy=?": the rank side (rank/patches.py) changes the arguments
of the calls that a toggle is about, or, for "?", only tells that the script comes to them.
"""

from __future__ import annotations

from collections.abc import Mapping

# How the processes of a watched script find us (rank/watched/command_environment.py), and
# which rank is taken (process_role.py).
PACKAGE_VARIABLE = "HANGBISECT_PACKAGE"
CLAIM_VARIABLE = "HANGBISECT_CLAIM"
# The path of a socket of `hangbisect run`, in all that it starts: also the mark to find that by.
OUTER_VARIABLE = "HANGBISECT_OUTER"
# The pid of `hangbisect run`, whose only child the command is.
FRONT_VARIABLE = "HANGBISECT_FRONT"
# The descriptor of a socket to who started `hangbisect run`.
STARTER_VARIABLE = "HANGBISECT_STARTER"
# Where hangbisect itself runs: its monitor needs its own packages, not the job's.
PYTHON_VARIABLE = "HANGBISECT_PYTHON"
PATH_VARIABLE = "HANGBISECT_PATH"
# What the monitors of a job's nodes have in common (a secret), and where the one that leads is to
# listen: "n1:29600", several with commas between.
TOKEN_VARIABLE = "HANGBISECT_TOKEN"
LEAD_VARIABLE = "HANGBISECT_LEAD"
STEADY_VARIABLE = "HANGBISECT_STEADY"
KEEP_WATCHING_VARIABLE = "HANGBISECT_KEEP_WATCHING"
STEP_VARIABLE = "HANGBISECT_STEP"
CAPTURE_VARIABLE = "HANGBISECT_CAPTURE"
# The packages of the table of known calls (rank/watched/known_calls.py) that are not Python's own.
PACKAGES = (
    *("accelerate", "datasets", "deepspeed", "huggingface_hub", "lightning", "lightning_fabric"),
    *("mlflow", "mpi4py", "openrlhf", "peft", "pytorch_lightning", "ray", "safetensors", "sglang"),
    *("tensorboardX", "tensorrt_llm", "torch", "transformers", "trl", "verl", "vllm", "wandb"),
)

STEADY = 5  # training steps of one optimizer, after which a script has started
BARRIER_MODES = ("off", "observe", "lockstep")
DEFAULT_BARRIER_MODE = "lockstep"
BARRIER_HELP = (
    "after each checkpoint: nothing; only note when each rank arrives; hold every rank until all "
    "have arrived"
)


VARIABLE = "HANGBISECT_STEER"
ASKED = "?"  # in the place of a value: tell when the call is reached, and change nothing
IN_CODE = ":in-code"  # told after a toggle's name: the script says the value itself


def parse_toggle_values(text: str) -> dict[str, str]:
    """Return the values of toggles by name; what is no NAME=VALUE is left out."""
    pairs = [word.partition("=") for word in text.split(",")]
    return {name.strip(): value.strip() for name, _, value in pairs if name.strip() and value}


def format_toggle_values(setting: Mapping[str, str]) -> str:
    """Return the text that parse_toggle_values() reads."""
    return ",".join(f"{name}={value}" for name, value in setting.items())
