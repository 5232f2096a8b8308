"""What one rank does at one place of a program, while the others go on to wait for it.

FAULT_RANK, FAULT_KIND and FAULT_PLACE say which, what and where. A kind is one function, written as
it happens to people.
"""

import fcntl
import multiprocessing
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request

SERVICE = os.environ.get("FAULT_SERVICE", "")


def read_features():
    path = f"/tmp/features-{os.getpid()}"
    os.mkfifo(path)
    with open(path) as file:
        return file.read()


def lock_cache():
    file = open("/tmp/cache.lock", "w")  # noqa: SIM115 - it holds the lock
    fcntl.flock(file, fcntl.LOCK_EX)
    return file


def update_statistics():
    lock = threading.Lock()
    lock.acquire()
    try:
        lock.acquire()
    finally:
        lock.release()


def pause_until_tomorrow():
    time.sleep(100_000)


def report_run():
    return urllib.request.urlopen(f"http://{SERVICE}/runs").read()


def run_tokenizer():
    return subprocess.run(["sh", "-c", "sleep 100000; echo done"], check=True)


def stop_self():
    os.kill(os.getpid(), signal.SIGSTOP)


def wait_for_prepared_data():
    open("/tmp/prepare.lock", "w").close()
    while os.path.exists("/tmp/prepare.lock"):
        time.sleep(0.2)


def _fill(batches):
    os._exit(1)


def take_batch():
    batches = multiprocessing.Queue()
    worker = multiprocessing.Process(target=_fill, args=(batches,), daemon=True)
    worker.start()
    return batches.get()


def take_from_thread():
    batches = queue.Queue()
    threading.Thread(target=lambda: None).start()
    return batches.get()


def wait_for_first_batch():
    arrived = threading.Condition()
    threading.Thread(target=lambda: None).start()
    with arrived:
        arrived.wait()


def swap_buffers():
    front, back, both = threading.Lock(), threading.Lock(), threading.Barrier(2)

    def draw():
        with back:
            both.wait()
            with front:
                pass

    threading.Thread(target=draw, daemon=True).start()
    with front:
        both.wait()
        with back:
            pass


def ask_broker():
    host, _, port = SERVICE.partition(":")
    with socket.create_connection((host, int(port))) as broker:
        broker.sendall(b"next\n")
        return broker.recv(100)


def sort_samples():
    sorting = subprocess.Popen(["sort"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    sorting.stdin.write(b"two\none\n")
    return sorting.stdout.read()


def leave():
    sys.exit(0)


def raise_error():
    raise ValueError("the label 17 is out of range")


def be_killed():
    os.kill(os.getpid(), signal.SIGKILL)


KINDS = {
    "fifo": read_features,
    "flock": lock_cache,
    "lock": update_statistics,
    "sleep": pause_until_tomorrow,
    "service": report_run,
    "child": run_tokenizer,
    "stopped": stop_self,
    "marker": wait_for_prepared_data,
    "worker": take_batch,
    "thread": take_from_thread,
    "condition": wait_for_first_batch,
    "order": swap_buffers,
    "peer": ask_broker,
    "input": sort_samples,
    "leaves": leave,
    "raises": raise_error,
    "killed": be_killed,
}


def is_here(place):
    return os.environ["FAULT_RANK"] == os.environ["RANK"] and os.environ["FAULT_PLACE"] == place


def come_to(place):
    if is_here(place):
        kind = KINDS.get(os.environ["FAULT_KIND"])
        if kind is not None:
            kind()
