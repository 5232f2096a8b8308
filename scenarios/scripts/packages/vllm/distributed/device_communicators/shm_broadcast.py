"""A stand-in of vllm/distributed/device_communicators/shm_broadcast.py: a ring in shared memory of
one writer, and ZMQ that wakes its readers.
"""

import logging
import os
import pickle
import time
from contextlib import contextmanager
from multiprocessing import resource_tracker, shared_memory

import zmq

from vllm.utils import get_open_zmq_ipc_path

logger = logging.getLogger(__name__)
VLLM_RINGBUFFER_WARNING_INTERVAL = 60
CHUNK, CHUNKS = 4096, 10


class SpinCondition:
    def __init__(self, notify_socket, busy_loop_s=1.0):
        self.last_read = time.monotonic()
        self.busy_loop_s = busy_loop_s
        self.poller = zmq.Poller()
        self.poller.register(notify_socket, zmq.POLLIN)
        self.notify_socket = notify_socket

    def record_read(self):
        self.last_read = time.monotonic()

    def wait(self, timeout_ms):
        if time.monotonic() <= self.last_read + self.busy_loop_s:
            os.sched_yield()
        elif self.poller.poll(timeout_ms):
            self.notify_socket.recv(zmq.NOBLOCK)


class ShmRingBuffer:
    def __init__(self, n_reader, name=None):
        self.n_reader = n_reader
        size = CHUNKS * (CHUNK + 1 + n_reader)
        self.shared_memory = shared_memory.SharedMemory(name, create=name is None, size=size)
        if name is not None:
            resource_tracker.unregister(self.shared_memory._name, "shared_memory")

    def flags(self, at):
        start = CHUNKS * CHUNK + at * (1 + self.n_reader)
        return self.shared_memory.buf[start : start + 1 + self.n_reader]

    def data(self, at):
        return self.shared_memory.buf[at * CHUNK : (at + 1) * CHUNK]


class MessageQueue:
    def __init__(self, n_reader):
        self.n_reader = n_reader
        self.buffer = ShmRingBuffer(n_reader)
        self.context = zmq.Context()
        self.local_socket = self.context.socket(zmq.XPUB)
        self.local_socket.setsockopt(zmq.XPUB_VERBOSE, True)
        self.address = get_open_zmq_ipc_path()
        self.local_socket.bind(self.address)
        self.current_idx, self._is_writer = 0, True

    def export_handle(self):
        return self.n_reader, self.buffer.shared_memory.name, self.address

    @staticmethod
    def create_from_handle(handle, rank):
        self = MessageQueue.__new__(MessageQueue)
        self.n_reader, name, self.address = handle
        self.buffer = ShmRingBuffer(self.n_reader, name)
        self.context = zmq.Context()
        self.local_socket = self.context.socket(zmq.SUB)
        self.local_socket.setsockopt_string(zmq.SUBSCRIBE, "")
        self.local_socket.connect(self.address)
        self.current_idx, self._is_writer, self.local_reader_rank = 0, False, rank
        self._spin_condition = SpinCondition(self.local_socket)
        return self

    def wait_until_ready(self):
        if self._is_writer:
            for _ in range(self.n_reader):
                self.local_socket.recv()
            self.local_socket.send(b"READY")
        else:
            assert self.local_socket.recv() == b"READY"

    @contextmanager
    def acquire_write(self, timeout=None):
        start_time, n_warning = time.monotonic(), 1
        while True:
            flags = self.buffer.flags(self.current_idx)
            if flags[0] and sum(flags[1:]) < self.n_reader:
                os.sched_yield()
                if time.monotonic() - start_time > VLLM_RINGBUFFER_WARNING_INTERVAL * n_warning:
                    logger.info(
                        "No available shared memory broadcast block found in %s seconds.",
                        VLLM_RINGBUFFER_WARNING_INTERVAL,
                    )
                    n_warning += 1
                continue
            flags[0] = 0
            yield self.buffer.data(self.current_idx)
            for reader in range(self.n_reader):
                flags[1 + reader] = 0
            flags[0] = 1
            self.current_idx = (self.current_idx + 1) % CHUNKS
            break

    @contextmanager
    def acquire_read(self, timeout=None, indefinite=False):
        start_time, n_warning = time.monotonic(), 1
        while True:
            flags = self.buffer.flags(self.current_idx)
            if not flags[0] or flags[1 + self.local_reader_rank]:
                self._spin_condition.wait(timeout_ms=5000)
                elapsed = time.monotonic() - start_time
                if timeout is not None and elapsed > timeout:
                    raise TimeoutError
                if not indefinite and elapsed > VLLM_RINGBUFFER_WARNING_INTERVAL * n_warning:
                    logger.info(
                        "No available shared memory broadcast block found in %s seconds. This "
                        "typically happens when some processes are hanging or doing some "
                        "time-consuming work (e.g. compilation, weight/kv cache quantization).",
                        VLLM_RINGBUFFER_WARNING_INTERVAL,
                    )
                    n_warning += 1
                continue
            yield self.buffer.data(self.current_idx)
            flags[1 + self.local_reader_rank] = 1
            self.current_idx = (self.current_idx + 1) % CHUNKS
            self._spin_condition.record_read()
            break

    def enqueue(self, obj, timeout=None):
        serialized = pickle.dumps(obj)
        with self.acquire_write(timeout) as buf:
            buf[: len(serialized)] = serialized
        self.local_socket.send(b"")

    def dequeue(self, timeout=None, indefinite=False):
        with self.acquire_read(timeout, indefinite) as buf:
            return pickle.loads(buf)
