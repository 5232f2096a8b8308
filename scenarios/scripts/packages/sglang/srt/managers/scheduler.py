"""A stand-in of sglang/srt/managers/scheduler.py, with --sleep-on-idle."""

import os
import signal
import traceback

import setproctitle
import zmq

from sglang.srt.utils import kill_itself_when_parent_died, remote_code


class IdleSleeper:
    def __init__(self, sockets):
        self.poller = zmq.Poller()
        for one in sockets:
            self.poller.register(one, zmq.POLLIN)

    def maybe_sleep(self):
        self.poller.poll(1000)


class Scheduler:
    def __init__(self, server_args, port_args, gpu_id, tp_rank):
        self.tp_rank, self.tp_size = tp_rank, server_args.tp_size
        context = zmq.Context(2)
        if tp_rank == 0:
            self.recv_from_tokenizer = context.socket(zmq.PULL)
            self.recv_from_tokenizer.bind(port_args["scheduler"])
            self.send_to_detokenizer = context.socket(zmq.PUSH)
            self.send_to_detokenizer.connect(port_args["detokenizer"])
            self.idle_sleeper = IdleSleeper([self.recv_from_tokenizer])
        self.init_model_worker(server_args, port_args, gpu_id, tp_rank)

    def init_model_worker(self, server_args, port_args, gpu_id, tp_rank):
        from sglang.srt.managers.tp_worker import TpModelWorker

        self.tp_worker = TpModelWorker(server_args, gpu_id, tp_rank, port_args["nccl_port"])

    def event_loop_normal(self):
        while True:
            self.recv_requests()
            if self.tp_rank == 0:
                self.idle_sleeper.maybe_sleep()

    def recv_requests(self):
        import torch

        if self.tp_size > 1:  # rank 0 hands on how many there are
            torch.distributed.broadcast(torch.zeros(1), src=0)


def run_scheduler_process(server_args, port_args, gpu_id, tp_rank, pipe_writer):
    prefix = f" TP{tp_rank}" if server_args.tp_size > 1 else ""
    kill_itself_when_parent_died()
    setproctitle.setproctitle(f"sglang::scheduler{prefix.replace(' ', '_')}")
    parent_process = os.getppid()
    remote_code(server_args.model_path, "configure", tp_rank)
    try:
        scheduler = Scheduler(server_args, port_args, gpu_id, tp_rank)
        pipe_writer.send({"status": "ready"})
        scheduler.event_loop_normal()
    except Exception:
        traceback.print_exc()
        os.kill(parent_process, signal.SIGQUIT)
