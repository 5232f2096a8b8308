"""Programs that take the place of real ones."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def on_path(folder: Path, programs: Mapping[str, str]) -> str:
    """Write shell scripts into `folder`/bin, by name; return a PATH that finds them first.

    End each with `exec`, so that nothing is left when it is killed: "exec sleep 1000".
    """
    bin = folder / "bin"
    bin.mkdir(parents=True, exist_ok=True)
    for name, script in programs.items():
        file = bin / name
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)
    return f"{bin}{os.pathsep}{os.environ.get('PATH', '')}"


def stuck(folder: Path, name: str, port: int) -> str:
    """Write a program that waits for a word from 127.0.0.1:`port`; return a PATH that finds it.

    It keeps its name, which a shell's `exec` would take from it.
    """
    path = on_path(folder, {name: ""})
    script = f"#!/bin/bash\nexec 3<>/dev/tcp/127.0.0.1/{port}\nread -r answer <&3\n"
    (folder / "bin" / name).write_text(script)
    return path
