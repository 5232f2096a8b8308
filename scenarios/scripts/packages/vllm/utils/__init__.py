"""A stand-in of vllm/utils."""

import importlib.util
import multiprocessing
import os
import socket
import tempfile
import uuid

import setproctitle


def get_mp_context():
    return multiprocessing.get_context("spawn")


def set_process_title(name, suffix="", prefix="VLLM"):
    if suffix:
        name = f"{name}_{suffix}"
    setproctitle.setproctitle(f"{prefix}::{name}")


def get_open_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def get_open_zmq_ipc_path():
    return f"ipc://{tempfile.gettempdir()}/{uuid.uuid4()}"


def remote_code(path, name, *args):
    """Call what the model's own code has for a step, if it has it."""
    spec = importlib.util.spec_from_file_location("modeling", os.path.abspath(path))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function = getattr(module, name, None)
    return function(*args) if function else None
