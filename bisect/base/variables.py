"""Names that a process needs before it knows whether it is a rank. Most are none: no imports."""

# How the processes of a watched script find us (variables.py), and
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
STEADY_VARIABLE = "HANGBISECT_STEADY"
KEEP_WATCHING_VARIABLE = "HANGBISECT_KEEP_WATCHING"
STEP_VARIABLE = "HANGBISECT_STEP"
CAPTURE_VARIABLE = "HANGBISECT_CAPTURE"
# The packages of the table of known calls (rank/watched/known_calls.py) that are not Python's own.
PACKAGES = (
    *("accelerate", "datasets", "deepspeed", "huggingface_hub", "lightning", "lightning_fabric"),
    *("mlflow", "mpi4py", "peft", "pytorch_lightning", "safetensors", "tensorboardX", "torch"),
    *("transformers", "wandb"),
)

STEADY = 5  # training steps of one optimizer, after which a script has started
