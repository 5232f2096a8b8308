"""Whether there is a W&B account is asked of wandb itself, without prompt, process or network."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

# Not imported: each worker reads this file, and that takes a second.
if importlib.util.find_spec("wandb") is None:
    pytest.skip("no wandb", allow_module_level=True)

ASK = """
import sys, importlib.util as u
s = u.spec_from_file_location("pkg", sys.argv[1] + "/__init__.py",
                              submodule_search_locations=[sys.argv[1]])
sys.modules["pkg"] = u.module_from_spec(s)
import psutil, wandb
from pkg.pipelines.startup import has_account
print(has_account(wandb), len(psutil.Process().children(recursive=True)))
"""
KEY = "a" * 40


def asked(package: Path, home: Path, **environ: str) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    done = subprocess.run(
        [sys.executable, "-c", ASK, package],
        env={**clean, "HOME": str(home), "NETRC": str(home / ".netrc"), **environ},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        cwd=home,
    )
    assert done.stderr == ""
    return done.stdout.strip()


def test_without_credentials_there_is_none(package: Path, tmp_path: Path) -> None:
    assert asked(package, tmp_path) == "False 0"


def test_a_key_in_the_environment_is_one(package: Path, tmp_path: Path) -> None:
    assert asked(package, tmp_path, WANDB_API_KEY=KEY) == "True 0"


def test_a_key_in_netrc_is_one(package: Path, tmp_path: Path) -> None:
    netrc = tmp_path / ".netrc"
    netrc.write_text(f"machine wandb.corp\n  login user\n  password {KEY}\n")
    netrc.chmod(0o600)
    assert asked(package, tmp_path, WANDB_BASE_URL="https://wandb.corp") == "True 0"


def test_a_key_that_cannot_be_one_is_left_to_wandb_to_refuse(package: Path, tmp_path: Path) -> None:
    assert asked(package, tmp_path, WANDB_API_KEY="no key") == "True 0"
