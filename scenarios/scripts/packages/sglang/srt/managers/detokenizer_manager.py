"""A stand-in of sglang/srt/managers/detokenizer_manager.py."""

import setproctitle
import zmq

from sglang.srt.utils import kill_itself_when_parent_died


class DetokenizerManager:
    def __init__(self, port_args):
        self.recv_from_scheduler = zmq.Context(2).socket(zmq.PULL)
        self.recv_from_scheduler.bind(port_args["detokenizer"])

    def event_loop(self):
        while True:
            self.recv_from_scheduler.recv_pyobj()


def run_detokenizer_process(server_args, port_args):
    kill_itself_when_parent_died()
    setproctitle.setproctitle("sglang::detokenizer")
    DetokenizerManager(port_args).event_loop()
