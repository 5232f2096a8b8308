"""A stand-in of vllm/v1/engine/utils.py."""

import contextlib
import logging
import weakref

import zmq

from vllm.utils import get_mp_context, get_open_zmq_ipc_path

logger = logging.getLogger(__name__)
STARTUP_POLL_PERIOD_MS = 10000


def shutdown(processes):
    for proc in processes:
        proc.terminate()


class CoreEngineProcManager:
    def __init__(self, target_fn, vllm_config, addresses, handshake_address):
        context = get_mp_context()
        self.processes = [
            context.Process(
                target=target_fn,
                name="EngineCore_DP0",
                kwargs={
                    "vllm_config": vllm_config,
                    "addresses": addresses,
                    "handshake_address": handshake_address,
                },
            )
        ]
        self._finalizer = weakref.finalize(self, shutdown, self.processes)
        for proc in self.processes:
            proc.start()

    def sentinels(self):
        return [proc.sentinel for proc in self.processes]

    def finished_procs(self):
        return {p.name: p.exitcode for p in self.processes if p.exitcode is not None}


@contextlib.contextmanager
def launch_core_engines(vllm_config, addresses):
    from vllm.v1.engine.core import EngineCoreProc

    handshake_address = get_open_zmq_ipc_path()
    handshake_socket = zmq.Context.instance().socket(zmq.ROUTER)
    handshake_socket.bind(handshake_address)
    manager = CoreEngineProcManager(
        EngineCoreProc.run_engine_core, vllm_config, addresses, handshake_address
    )
    yield manager
    # Now wait for engines to start.
    wait_for_engine_startup(handshake_socket, manager)


def wait_for_engine_startup(handshake_socket, proc_manager):
    conn_pending, start_pending = [1, 0], [0, 0]
    poller = zmq.Poller()
    poller.register(handshake_socket, zmq.POLLIN)
    for sentinel in proc_manager.sentinels():
        poller.register(sentinel, zmq.POLLIN)
    while any(conn_pending) or any(start_pending):
        events = poller.poll(STARTUP_POLL_PERIOD_MS)
        if not events:
            if any(conn_pending):
                logger.debug(
                    "Waiting for %d local, %d remote core engine proc(s) to connect.",
                    *conn_pending,
                )
            if any(start_pending):
                logger.debug(
                    "Waiting for %d local, %d remote core engine proc(s) to start.",
                    *start_pending,
                )
            continue
        if len(events) > 1 or events[0][0] != handshake_socket:
            finished = proc_manager.finished_procs()
            raise RuntimeError(
                "Engine core initialization failed. See root cause above. "
                f"Failed core proc(s): {finished}"
            )
        identity, message = handshake_socket.recv_multipart()
        if message == b"HELLO":
            handshake_socket.send_multipart([identity, b"INIT"])
            conn_pending[0] -= 1
            start_pending[0] += 1
        elif message == b"READY":
            start_pending[0] -= 1
