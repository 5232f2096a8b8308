"""What a look has of the one before where the kernel did not list the sockets in time."""

from __future__ import annotations

from dataclasses import replace

from hangbisect.base.process_facts import Descriptor, Look, Socket
from hangbisect.evidence.descriptors import TABLES_UNKNOWN
from hangbisect.evidence.successive_looks import complete_look

from ..diagnosis.made_up import look

PEER = Socket(7, "unix", state="ESTABLISHED", peer_pids=(300,), peer_names=("router",))


def reads(socket: Socket | None, sockets: tuple[Socket, ...] = ()) -> Look:
    end = Descriptor(3, "socket", "socket:[7]", socket=socket)
    return look("recv train.py:3", call="read", descriptors=(end,), sockets=sockets)


def test_the_other_end_of_a_socket_is_that_of_the_look_before() -> None:
    before = reads(PEER, (PEER,))
    after = complete_look(before, replace(reads(None), missing=(TABLES_UNKNOWN,)))
    assert after.sockets == (PEER,)
    (task,) = after.kernel
    assert task.syscall is not None
    assert task.syscall.descriptors[0].socket == PEER


def test_of_another_process_and_of_a_table_that_was_read_nothing_is_taken() -> None:
    before = reads(PEER, (PEER,))
    other = replace(reads(None), pid=101, missing=(TABLES_UNKNOWN,))
    assert complete_look(before, other).sockets == ()
    assert complete_look(before, reads(None)).sockets == ()
