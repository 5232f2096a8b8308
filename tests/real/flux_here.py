"""A Flux of two brokers on this machine. Nothing of the machine's own Flux is touched.

Debian has no package of it; how it was built for these tests is in CONTRIBUTING.md.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

BROKERS = 2
COMING_UP = 60.0
# The brokers end when this reads the end of its stdin.
_STAYS = 'flux getattr local-uri > "$0"; cat > /dev/null'


def missing() -> str:
    """Return why there can be no Flux here, "" if there can be one."""
    return "" if shutil.which("flux") else "no flux here (flux-framework.readthedocs.io)"


class Flux:
    """The brokers, and what their clients need in the environment."""

    def __init__(self) -> None:
        """Nothing is started yet."""
        self.folder = Path(tempfile.mkdtemp(prefix="flux-"))
        self.environ: dict[str, str] = {}
        self._brokers: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the brokers; return when they take jobs."""
        told = self.folder / "uri"
        with (self.folder / "out").open("ab") as log:
            self._brokers = subprocess.Popen(
                ["flux", "start", f"--test-size={BROKERS}", "sh", "-c", _STAYS, str(told)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        end = time.monotonic() + COMING_UP
        while not (told.exists() and told.read_text().endswith("\n")):
            if time.monotonic() > end or self._brokers.poll() is not None:
                raise RuntimeError((self.folder / "out").read_text())
            time.sleep(0.1)
        self.environ["FLUX_URI"] = told.read_text().strip()

    def end(self) -> None:
        """End jobs and brokers, and remove the folder."""
        if self._brokers is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.ask("cancel", "--all")
            assert self._brokers.stdin is not None
            self._brokers.stdin.close()
            try:
                self._brokers.wait(COMING_UP)
            except subprocess.TimeoutExpired:
                self._brokers.kill()
                self._brokers.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def ask(self, *words: str) -> str:
        """Return what a command of Flux's prints."""
        done = subprocess.run(
            ["flux", *words],
            env={**os.environ, **self.environ},
            capture_output=True,
            text=True,
            timeout=COMING_UP,
        )
        return done.stdout.strip()

    def is_free(self) -> bool:
        """Return whether nothing is queued or runs, once all that ends has ended."""
        end = time.monotonic() + COMING_UP
        while self.ask("jobs", "--no-header", "--filter=pending,running"):
            if time.monotonic() > end:
                return False
            time.sleep(0.1)
        return True
