"""A stand-in of vllm/v1/executor/multiproc_executor.py."""

import logging
import multiprocessing
import os
import signal
import threading
from multiprocessing import connection

from vllm.distributed.device_communicators.shm_broadcast import MessageQueue
from vllm.utils import get_mp_context, get_open_port, set_process_title

logger = logging.getLogger(__name__)


class MultiprocExecutor:
    def __init__(self, vllm_config):
        self.vllm_config = vllm_config
        self._init_executor()

    def _init_executor(self):
        self.world_size = self.vllm_config.parallel_config.world_size
        method = f"tcp://127.0.0.1:{get_open_port()}"
        self.rpc_broadcast_mq = MessageQueue(self.world_size)
        unready = [
            WorkerProc.make_worker_process(
                self.vllm_config, rank, rank, method, self.rpc_broadcast_mq.export_handle()
            )
            for rank in range(self.world_size)
        ]
        self.procs = [proc for proc, _, _, _ in unready]
        self.deaths = [death for _, _, _, death in unready]
        success = False
        try:
            self.response_mqs = WorkerProc.wait_for_ready(unready)
            self.rpc_broadcast_mq.wait_until_ready()
            for mq in self.response_mqs:
                mq.wait_until_ready()
            success = True
        finally:
            if not success:
                self.shutdown()

    def collective_rpc(self, method, *args, timeout=None):
        self.rpc_broadcast_mq.enqueue((method, args))

        def get_response(mq):
            status, result = mq.dequeue(timeout)
            if status != "SUCCESS":
                raise RuntimeError(f"Worker failed with error '{result}'")
            return result

        return [get_response(mq) for mq in self.response_mqs]

    def determine_available_memory(self):
        return self.collective_rpc("determine_available_memory")

    def initialize_from_config(self):
        self.collective_rpc("initialize_from_config")
        self.collective_rpc("compile_or_warm_up_model")

    def execute_model(self, request):
        return self.collective_rpc("execute_model", request)[0]

    def shutdown(self):
        for death in self.deaths:
            death.close()
        for proc in self.procs:
            proc.terminate()
        for proc in self.procs:
            proc.join(4)
        for proc in self.procs:
            if proc.is_alive():
                proc.kill()


class WorkerProc:
    READY_STR = "READY"

    def __init__(self, vllm_config, local_rank, rank, distributed_init_method, input_shm_handle):
        from vllm.v1.worker.gpu_worker import Worker

        self.rank = rank
        self.worker = Worker(vllm_config, local_rank, rank, distributed_init_method)
        if vllm_config.parallel_config.world_size > 1:
            set_process_title("Worker", f"TP{rank}")
        self.rpc_broadcast_mq = MessageQueue.create_from_handle(input_shm_handle, rank)
        self.worker_response_mq = MessageQueue(1)
        self.worker.init_device()
        self.worker.load_model()

    @staticmethod
    def make_worker_process(vllm_config, local_rank, rank, distributed_init_method, handle):
        context = get_mp_context()
        reader, writer = context.Pipe(duplex=False)
        death_reader, death_writer = context.Pipe(duplex=False)
        proc = context.Process(
            target=WorkerProc.worker_main,
            kwargs={
                "vllm_config": vllm_config,
                "local_rank": local_rank,
                "rank": rank,
                "distributed_init_method": distributed_init_method,
                "input_shm_handle": handle,
                "ready_pipe": (reader, writer),
                "death_pipe": death_reader,
            },
            name=f"VllmWorker-{rank}",
            daemon=True,
        )
        proc.start()
        writer.close()
        return proc, rank, reader, death_writer

    @staticmethod
    def wait_for_ready(unready_proc_handles):
        pipes = {reader: rank for _, rank, reader, _ in unready_proc_handles}
        ready_proc_handles = [None] * len(unready_proc_handles)
        while pipes:
            ready = multiprocessing.connection.wait(pipes.keys())
            for pipe in ready:
                try:
                    rank = pipes.pop(pipe)
                    response = pipe.recv()
                    mq = MessageQueue.create_from_handle(response["handle"], 0)
                    ready_proc_handles[rank] = mq
                except EOFError:
                    raise Exception(
                        "WorkerProc initialization failed due to an exception in a background "
                        "process. See stack trace for root cause."
                    ) from None
                finally:
                    pipe.close()
        return ready_proc_handles

    @staticmethod
    def worker_main(*args, **kwargs):
        def signal_handler(signum, frame):
            raise SystemExit

        signal.signal(signal.SIGTERM, signal_handler)
        reader, ready_writer = kwargs.pop("ready_pipe")
        death_pipe = kwargs.pop("death_pipe")

        def monitor_parent_death():
            try:
                death_pipe.recv()
            except EOFError:
                os.kill(os.getpid(), signal.SIGTERM)

        threading.Thread(
            target=monitor_parent_death, daemon=True, name="WorkerDeathMonitor"
        ).start()
        reader.close()
        try:
            worker = WorkerProc(*args, **kwargs)
            handle = worker.worker_response_mq.export_handle()
            ready_writer.send({"status": WorkerProc.READY_STR, "handle": handle})
            worker.rpc_broadcast_mq.wait_until_ready()
            worker.worker_response_mq.wait_until_ready()
            ready_writer.close()
            ready_writer = None
            worker.worker_busy_loop()
        except Exception:
            if ready_writer is not None:
                logger.exception("WorkerProc failed to start.")
            else:
                logger.exception("WorkerProc failed.")

    def worker_busy_loop(self):
        """Main busy loop for Multiprocessing Workers."""
        while True:
            method, args = self.rpc_broadcast_mq.dequeue(indefinite=True)
            output = getattr(self.worker, method)(*args)
            self.worker_response_mq.enqueue(("SUCCESS", output))


assert connection  # multiprocessing.connection is used by its full name, as in vLLM
