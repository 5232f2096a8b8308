"""What installing us changes for a job with Lightning: nothing.

A fresh virtual environment gets torch and Lightning, then our wheel. Before and after: the packages
and their versions, the classes of the callbacks that a Trainer chooses for itself, and what
DeepSpeed and accelerate look for by name. Prints what differs, and returns 1 for anything but
our own package and what it needs.

    python benchmarks/beside_lightning.py WHEEL [--torch torch==2.13.0+cpu] [--with deepspeed ...]

It downloads torch, unless pip has it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

MAY_COME = {"hangbisect", "py-spy", "jinja2", "markupsafe"}
ASKED = """
import importlib.util, json, logging, sys
logging.disable(logging.CRITICAL)
from pytorch_lightning import Trainer
chosen = [type(one).__qualname__ for one in Trainer(accelerator="cpu", logger=False).callbacks]
names = ("rich", "pynvml", "psutil", "amdsmi", "yaml", "pydantic")
json.dump([chosen, [name for name in names if importlib.util.find_spec(name)]], sys.stdout)
"""


def main() -> int:
    """Print what differs; return 1 if a job could notice it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--with", dest="more", nargs="*", default=[], help="further packages")
    parser.add_argument("--torch", default="torch", help="which torch")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        python = Path(folder) / "bin" / "python"
        install(python, options.torch, "pytorch-lightning", *options.more)
        before = packages(python), answer(python)
        install(python, str(options.wheel))
        after = packages(python), answer(python)
    came = {name for name in after[0] if after[0][name] != before[0].get(name)}
    print("Trainer chooses", ", ".join(before[1][0]))
    print("came or changed:", ", ".join(sorted(came)) or "nothing")
    same = before[1] == after[1] and came <= MAY_COME
    print("the same" if same else f"differs: {before[1]} and then {after[1]}")
    return 0 if same else 1


def install(python: Path, *what: str) -> None:
    """Install packages, quietly."""
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*command, *what], check=True)


def packages(python: Path) -> dict[str, str]:
    """Return the version of each package."""
    command = [str(python), "-m", "pip", "list", "--format=json", "--disable-pip-version-check"]
    listed = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return {one["name"].lower().replace("_", "-"): one["version"] for one in listed}


def answer(python: Path) -> list[list[str]]:
    """Return the classes that a Trainer chooses, and which of some packages are there."""
    ran = subprocess.run([str(python), "-c", ASKED], check=True, capture_output=True)
    found: list[list[str]] = json.loads(ran.stdout)
    return found


if __name__ == "__main__":
    raise SystemExit(main())
