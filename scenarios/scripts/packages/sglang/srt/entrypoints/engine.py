"""A stand-in of sglang/srt/entrypoints/engine.py."""

import logging
import multiprocessing as mp

from sglang.srt.managers.detokenizer_manager import run_detokenizer_process
from sglang.srt.managers.scheduler import run_scheduler_process
from sglang.srt.utils import get_free_port, ipc_name, wait_port_available

logger = logging.getLogger(__name__)


class Engine:
    """The engine of a script, without HTTP."""

    def __init__(self, server_args):
        self.procs = _launch_subprocesses(server_args)

    def shutdown(self):
        for proc in (*self.procs[0], self.procs[1]):
            proc.kill()


def _launch_subprocesses(server_args):
    mp.set_start_method("spawn", force=True)
    wait_port_available(server_args.port, "server", timeout_s=3600)
    port_args = {"nccl_port": get_free_port(), "scheduler": ipc_name(), "detokenizer": ipc_name()}
    scheduler_procs, scheduler_pipe_readers = [], []
    for tp_rank in range(server_args.tp_size):
        reader, writer = mp.Pipe(duplex=False)
        proc = mp.Process(
            target=run_scheduler_process, args=(server_args, port_args, tp_rank, tp_rank, writer)
        )
        proc.start()
        scheduler_procs.append(proc)
        scheduler_pipe_readers.append(reader)
    detoken_proc = mp.Process(target=run_detokenizer_process, args=(server_args, port_args))
    detoken_proc.start()
    _wait_for_scheduler_ready(scheduler_procs, scheduler_pipe_readers)
    return scheduler_procs, detoken_proc


def _wait_for_scheduler_ready(scheduler_procs, scheduler_pipe_readers):
    # Wait for the model to finish loading
    for i in range(len(scheduler_pipe_readers)):
        try:
            data = scheduler_pipe_readers[i].recv()
        except EOFError:
            logger.error("Rank %s scheduler is dead. Please check the logs.", i)
            scheduler_procs[i].join()
            raise
        if data["status"] != "ready":
            raise RuntimeError("Initialization failed. Please see the error messages above.")
