"""A stand-in of sglang/srt/utils."""

import ctypes
import importlib.util
import logging
import os
import signal
import socket
import tempfile
import time

logger = logging.getLogger(__name__)


def kill_itself_when_parent_died():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def get_free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def is_port_available(port):
    with socket.socket() as one:
        try:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind(("127.0.0.1", port))
            one.listen(1)
            return True
        except OSError:
            return False


def wait_port_available(port, port_name, timeout_s=30):
    for i in range(timeout_s):
        if is_port_available(port):
            return True
        if i > 10 and i % 5 == 0:
            logger.warning("%s port %s is in use. Waiting for %s seconds.", port_name, port, i)
        time.sleep(1)
    raise ValueError(f"{port_name} at {port} is not available in {timeout_s} seconds.")


def ipc_name():
    return f"ipc://{tempfile.mktemp()}"


def remote_code(path, name, *args):
    """Call what the model's own code has for a step, if it has it."""
    spec = importlib.util.spec_from_file_location("modeling", os.path.abspath(path))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function = getattr(module, name, None)
    return function(*args) if function else None
