"""Trainers of reinforcement learning whose engine is a server of its own, with the real TRL where
that is installed: what it imports of vLLM is the stand-in.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hangbisect.evidence.process import descendants

Start = Callable[..., "subprocess.Popen[str]"]

PACKAGES = Path(__file__).parents[2] / "scenarios" / "scripts" / "packages"
LIMIT = 240.0  # seconds, on a busy machine
GRPO = """
import logging, sys
logging.basicConfig(level="INFO")
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer


def reward(completions, **kwargs):
    return [float(len(text)) for text in completions]


words = {word: n for n, word in enumerate(["<pad>", "<eos>", "a", "b", "c"])}
tokenizer = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
config = LlamaConfig(
    vocab_size=8, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2
)
GRPOTrainer(
    model=LlamaForCausalLM(config),
    reward_funcs=reward,
    args=GRPOConfig(
        output_dir="out",
        use_cpu=True,
        bf16=False,
        report_to=[],
        max_steps=1,
        per_device_train_batch_size=2,
        num_generations=2,
        max_completion_length=4,
        use_vllm=True,
        vllm_mode="server",
        vllm_server_base_url=f"http://127.0.0.1:{sys.argv[1]}",
    ),
    train_dataset=Dataset.from_dict({"prompt": ["a b", "b c"]}),
    processing_class=PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>"
    ),
).train()
"""


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """An environment in which the stand-in of vLLM is imported, and the TRL that is installed."""
    for name in ("trl", "torch", "datasets", "transformers"):
        pytest.importorskip(name)
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages" / "vllm").symlink_to(PACKAGES / "vllm", target_is_directory=True)
    (tmp_path / "train.py").write_text(GRPO)
    return {
        **{name: value for name, value in os.environ.items() if "HANGBISECT_" not in name},
        "PYTHONPATH": str(tmp_path / "packages"),
        "OMP_NUM_THREADS": "1",
    }


@pytest.fixture
def stopping() -> Iterator[contextlib.ExitStack]:
    """What is done at the end of a test."""
    with contextlib.ExitStack() as stack:
        yield stack


def end_all_below(pid: int) -> None:
    """SIGKILL a server's processes: titles stand where their marks were."""
    for one in descendants([pid]):
        with contextlib.suppress(ProcessLookupError):
            os.kill(one, signal.SIGKILL)


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def check(said: str, port: int) -> None:
    """Check that the verdict names the address where nobody listens, and until when it is asked."""
    assert "SILENT" in said
    assert "HANG" not in said
    assert "in trl.VLLMClient.check_server" in said
    assert f"http://127.0.0.1:{port}/health, at which nobody listens" in said
    assert "cause     the server that is asked is not up" in said
    assert "waits for 240 s at most" in said  # vllm_server_timeout of GRPOConfig


def test_run_names_where_no_server_listens(
    tmp_path: Path, package: Path, start: Start, environ: dict[str, str], port: int
) -> None:
    ours = [sys.executable, str(package), "run", "--stall", "5", "--run-dir", "run"]
    ran = start(*ours, "--", sys.executable, "train.py", str(port), cwd=tmp_path, env=environ)
    assert ran.stderr is not None
    said: list[str] = []
    for line in ran.stderr:
        said.append(line)
        if line.startswith("job  "):
            break
    ran.send_signal(signal.SIGTERM)
    ran.communicate(timeout=LIMIT)
    check("".join(said), port)


def test_attach_names_where_no_server_listens(
    tmp_path: Path, package: Path, start: Start, environ: dict[str, str], port: int
) -> None:
    job = start(sys.executable, "train.py", str(port), cwd=tmp_path, env=environ)
    assert job.stderr is not None
    for line in job.stderr:
        if "Server is not up yet" in line:
            break
    ours = [sys.executable, str(package), "attach", "--pid", str(job.pid)]
    asked = subprocess.run(
        ours, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=LIMIT
    )
    check(asked.stdout, port)


def test_attach_names_the_server_that_was_started_to_listen_there(
    tmp_path: Path,
    package: Path,
    start: Start,
    environ: dict[str, str],
    port: int,
    stopping: contextlib.ExitStack,
) -> None:
    for name in ("zmq", "setproctitle"):
        pytest.importorskip(name)
    (tmp_path / "model.py").write_text("import time\ndef engine():\n    time.sleep(600)\n")
    serve = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", "model.py"]
    server = start(*serve, "--port", str(port), cwd=tmp_path, env=environ)
    stopping.callback(end_all_below, server.pid)
    job = start(sys.executable, "train.py", str(port), cwd=tmp_path, env=environ)
    assert job.stderr is not None
    for line in job.stderr:
        if "Server is not up yet" in line:
            break
    ours = [sys.executable, str(package), "attach", "--pid", str(job.pid)]
    asked = subprocess.run(
        ours, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=LIMIT
    )
    check(asked.stdout, port)
    assert f"API server (pid {server.pid}) was started to listen there" in asked.stdout
