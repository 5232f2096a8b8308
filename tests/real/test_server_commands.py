"""`vllm serve` as one types it: under `run`, and what isolate finds to start it with."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hangbisect.evidence.process import descendants

Start = Callable[..., "subprocess.Popen[str]"]

SCRIPTS = Path(__file__).parents[2] / "scenarios" / "scripts"
LIMIT = 300.0  # seconds for an isolation, on a busy machine
CAPTURES = (SCRIPTS / "server_vllm_capture_of_one_worker.py").read_text()
# What pip makes of vllm's entry point.
CONSOLE_SCRIPT = """#!{python}
import sys
from vllm.entrypoints.cli.main import main
if __name__ == "__main__":
    sys.exit(main())
"""


@pytest.fixture
def environ(tmp_path: Path) -> Iterator[dict[str, str]]:
    """An environment with the stand-in of vLLM and its console script, and a silent service."""
    for name in ("torch", "zmq", "setproctitle"):
        pytest.importorskip(name)
    script = tmp_path / "bin" / "vllm"
    script.parent.mkdir()
    script.write_text(CONSOLE_SCRIPT.format(python=sys.executable))
    script.chmod(0o755)
    (tmp_path / "model.py").write_text(CAPTURES)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        yield {
            **{name: value for name, value in os.environ.items() if "HANGBISECT_" not in name},
            "PATH": f"{script.parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(SCRIPTS / "packages"),
            "SERVICE": f"http://127.0.0.1:{silent.getsockname()[1]}/",
        }


def serve(*more: str) -> list[str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    return ["vllm", "serve", "model.py", "-tp", "2", "--port", str(port), *more]


def end_all_below(pid: int) -> None:
    """SIGKILL what `hangbisect run` has started: titles stand where their marks were."""
    for one in descendants([pid]):
        with contextlib.suppress(ProcessLookupError):
            os.kill(one, signal.SIGKILL)


def test_the_console_script_is_watched_and_its_worker_named(
    tmp_path: Path, package: Path, start: Start, environ: dict[str, str]
) -> None:
    ours = [sys.executable, str(package), "run", "--stall", "4", "--run-dir", "run"]
    ran = start(*ours, "--", *serve(), cwd=tmp_path, env=environ)
    assert ran.stderr is not None
    late = threading.Timer(LIMIT / 3, end_all_below, (ran.pid,))
    late.start()
    said: list[str] = []
    for line in ran.stderr:
        said.append(line)
        if line.startswith("job  "):
            break
    late.cancel()
    end_all_below(ran.pid)
    ran.communicate(timeout=LIMIT / 3)
    err = "".join(said)
    assert "culprit   Worker_TP1 of EngineCore_DP0" in err
    assert "hangbisect isolate -- python" in err
    assert "bin/vllm serve model.py -tp 2" in err


def test_isolate_names_the_flag_of_the_server_that_avoids_the_hang(
    tmp_path: Path, package: Path, start: Start, environ: dict[str, str]
) -> None:
    words = ["isolate", "--yes", "--stall", "4", "--confirm", "0", "--run-dir", "iso"]
    words += ["--only", "eager,prefix_cache,chunked_prefill"]
    command = serve("--stop-after", "1")
    ran = start(*(sys.executable, str(package), *words, "--", *command), cwd=tmp_path, env=environ)
    out, err = ran.communicate(timeout=LIMIT)
    found = json.loads((tmp_path / "iso" / "isolation.json").read_text())
    assert found["outcome"] == "isolated", err
    (change,) = found["changes"]
    assert (change["toggle"], change["value"]) == ("eager", "on")
    assert found["paste"] == " ".join([*command, "--enforce-eager"])
    assert "--enforce-eager" in out
