"""A stand-in of vllm/v1/engine/core.py."""

import json
import logging
import queue
import signal
import threading

import zmq

from vllm.utils import remote_code, set_process_title
from vllm.v1.executor.multiproc_executor import MultiprocExecutor

logger = logging.getLogger(__name__)
HANDSHAKE_TIMEOUT_MINS = 5


class EngineCore:
    def __init__(self, vllm_config):
        self.model = vllm_config.model
        remote_code(self.model, "engine")
        self.model_executor = MultiprocExecutor(vllm_config)
        self._initialize_kv_caches()

    def _initialize_kv_caches(self):
        remote_code(self.model, "kv_caches")
        self.model_executor.determine_available_memory()
        self.model_executor.initialize_from_config()


class EngineCoreProc(EngineCore):
    def __init__(self, vllm_config, addresses, handshake_address):
        self.input_queue = queue.Queue()
        self.output_queue = queue.Queue()
        with zmq.Context() as context, context.socket(zmq.DEALER) as handshake_socket:
            handshake_socket.setsockopt(zmq.IDENTITY, b"\0\0")
            handshake_socket.connect(handshake_address)
            self.startup_handshake(handshake_socket)
            super().__init__(vllm_config)
            handshake_socket.send(b"READY")
        ready = threading.Event()
        for target, address in (
            (self.process_input_sockets, addresses[0]),
            (self.process_output_sockets, addresses[1]),
        ):
            threading.Thread(target=target, args=(address, ready), daemon=True).start()
        ready.wait()

    @staticmethod
    def startup_handshake(handshake_socket):
        handshake_socket.send(b"HELLO")
        if not handshake_socket.poll(timeout=HANDSHAKE_TIMEOUT_MINS * 60_000):
            raise RuntimeError("Did not receive response from front-end process")
        handshake_socket.recv()

    @staticmethod
    def run_engine_core(**kwargs):
        set_process_title("EngineCore", "DP0")

        def signal_handler(signum, frame):
            raise SystemExit

        signal.signal(signal.SIGTERM, signal_handler)
        engine_core = None
        try:
            engine_core = EngineCoreProc(**kwargs)
            engine_core.run_busy_loop()
        except SystemExit:
            logger.debug("EngineCore exiting.")
            raise
        except Exception:
            if engine_core is None:
                logger.exception("EngineCore failed to start.")
            else:
                logger.exception("EngineCore encountered a fatal error.")
            raise
        finally:
            if engine_core is not None:
                engine_core.model_executor.shutdown()

    def run_busy_loop(self):
        """Core busy loop of the EngineCore."""
        while True:
            self._process_input_queue()

    def _process_input_queue(self):
        request = self.input_queue.get()
        self.output_queue.put(self._handle_client_request(request))

    def _handle_client_request(self, request):
        if not request.startswith("UTILITY"):
            return self.model_executor.execute_model(request)
        method, *args = json.loads(request.removeprefix("UTILITY"))
        return getattr(self, method)(*args)

    def collective_rpc(self, method, kwargs):
        return self.model_executor.collective_rpc(method, *kwargs.values())

    def process_input_sockets(self, address, ready_event):
        with zmq.Context() as context, context.socket(zmq.DEALER) as input_socket:
            input_socket.setsockopt(zmq.IDENTITY, b"\0\0")
            input_socket.connect(address)
            input_socket.send(b"")
            poller = zmq.Poller()
            poller.register(input_socket, zmq.POLLIN)
            ready_event.set()
            while True:
                for one, _ in poller.poll():
                    self.input_queue.put(one.recv().decode())

    def process_output_sockets(self, address, ready_event):
        with zmq.Context() as context, context.socket(zmq.PUSH) as output_socket:
            output_socket.connect(address)
            while True:
                output_socket.send(str(self.output_queue.get()).encode())
