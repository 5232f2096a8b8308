"""Who asks one question after another: made-up looks."""

from __future__ import annotations

from dataclasses import replace

from hangbisect.base.process_facts import Descriptor, Kernel, Look, Socket
from hangbisect.evidence.descriptors import ENDS_UNKNOWN
from hangbisect.evidence.movement import describe_movement, find_awaited_descriptors
from hangbisect.evidence.successive_looks import PeerRequest, complete_look, find_peer_request

from .test_movement import PEER, PID, fd_of, in_call, recv, seen, thread


def test_an_answer_as_short_as_its_question_is_no_progress_but_a_sign_of_asking() -> None:
    looks = [recv(0, 100, 400), recv(3, 330, 800)]
    assert describe_movement(looks) == ""
    assert find_peer_request(looks) == PeerRequest(3.0, "gets answers from 127.0.0.1:8000", True)


def test_where_no_answer_comes_there_is_none() -> None:
    assert find_peer_request([recv(0, 100, 400), recv(3, 100, 400)]) is None
    assert find_peer_request([recv(0, 100, 400), recv(3, 100, 800)]) is None


def test_a_heartbeat_is_no_answer() -> None:
    assert find_peer_request([recv(0, 100, 400), recv(3, 117, 417)]) is None


def test_who_sleeps_before_it_asks_again_only_polls() -> None:
    def asleep(at: float, received: int) -> Look:
        now = replace(PEER, received=received)
        return seen(at, kernel=(in_call("clock_nanosleep"),), sockets=(now,))

    assert find_peer_request([recv(0, 100, 400), asleep(1, 330), recv(2, 330, 800)]) is None


def on(inode: int, at: float, state: str = "ESTABLISHED", **about: object) -> Look:
    now: Socket = replace(PEER, inode=inode, local=f"127.0.0.1:{inode}", received=0, state=state)
    return seen(at, kernel=(in_call("recvfrom", fd_of(now)),), sockets=(now,), **about)


def test_a_new_connection_after_one_that_the_peer_closed_is_an_answer() -> None:
    assert find_peer_request([on(7, 0), on(8, 3)]) == PeerRequest(
        3.0, "asks 127.0.0.1:8000 anew", True
    )


def test_a_new_connection_after_one_that_only_this_side_closed_is_none() -> None:
    left = (replace(PEER, inode=0, local="127.0.0.1:7", state="FIN_WAIT2"),)
    assert find_peer_request([on(7, 0), on(8, 3, closed_here=left)]) is None


def test_where_this_side_closed_first_it_cannot_be_told_whether_it_was_answered() -> None:
    left = (replace(PEER, inode=0, local="127.0.0.1:7", state="TIME_WAIT"),)
    found = find_peer_request([on(7, 0), on(8, 3, closed_here=left)])
    assert found == PeerRequest(3.0, "asks 127.0.0.1:8000 anew", False)


def test_of_a_datagram_nobody_knows_whether_it_was_answered() -> None:
    def asks(inode: int, at: float) -> Look:
        udp = Socket(inode, "udp", f"127.0.0.1:{inode}", "10.0.0.1:53", "ESTABLISHED")
        return seen(at, kernel=(in_call("poll", fd_of(udp)),), sockets=(udp,))

    assert find_peer_request([asks(7, 0), asks(8, 4)]) == PeerRequest(
        4.0, "asks 10.0.0.1:53 anew", False
    )


def test_a_connection_that_is_not_made_is_none() -> None:
    assert find_peer_request([on(7, 0, "SYN_SENT"), on(8, 3, "SYN_SENT")]) is None
    assert find_peer_request([on(7, 0), on(8, 3, "SYN_SENT")]) is None


def test_who_is_woken_in_a_recv_without_an_end_hears_something_though_nobody_counts_it() -> None:
    local = Socket(9, "unix", "", "/run/service", "ESTABLISHED")
    looks = [
        seen(at, kernel=(in_call("recvfrom", fd_of(local)),), sockets=(local,), waits=waits)
        for at, waits in ((0, 5), (3, 5), (6, 6))
    ]
    assert find_peer_request(looks[:2]) is None
    assert find_peer_request(looks) == PeerRequest(
        6.0, "hears from who it waits for", answered=False, heard=True
    )


def polling(waits: int, timeout: int, *ends: Descriptor, name: str = "poll") -> Look:
    call = in_call(name, *ends).syscall
    assert call is not None
    call = replace(call, args=(0x7F00, len(ends), timeout, 0, 0, 0))
    sockets = tuple(end.socket for end in ends if end.socket is not None)
    task = Kernel(PID, "python", "S", "", call)
    return seen(3 * waits, kernel=(task,), sockets=sockets, waits=waits)


FOREVER = 0xFFFFFFFF  # -1 milliseconds, as the register has it
SERVICE = fd_of(Socket(9, "unix", "", "/run/service", "ESTABLISHED"))


def test_who_is_woken_in_a_poll_without_an_end_hears_something_too() -> None:
    """It reads what has come, and polls again: poll() returns at once where something is left."""
    for timeout in (FOREVER, (1 << 64) - 1):
        found = find_peer_request([polling(1, timeout, SERVICE), polling(2, timeout, SERVICE)])
        assert found == PeerRequest(6.0, "hears from who it waits for", False, heard=True)
    assert find_peer_request([polling(1, FOREVER, SERVICE)] * 2) is None
    # With a time limit it is woken by that; and where anything else may wake it nothing is known.
    assert find_peer_request([polling(1, 500, SERVICE), polling(2, 500, SERVICE)]) is None
    own = Descriptor(5, "pipe", "pipe:[18]", other_ends=(PID,))
    looks = [polling(waits, FOREVER, SERVICE, own) for waits in (1, 2)]
    assert find_peer_request(looks, ours={PID}) is None
    # ppoll() has a pointer there (NULL for no limit), which is not read here.
    looks = [polling(waits, FOREVER, SERVICE, name="ppoll") for waits in (1, 2)]
    assert find_peer_request(looks) is None


def reads_in_a_helper(at: float, waits: int, end: Descriptor) -> Look:
    helper = replace(in_call("read", end, tid=200), waits=waits)
    threads = (thread(1), thread(9, 200))
    return seen(at, threads=threads, kernel=(in_call("futex"), helper), waits=5)


def test_a_helper_thread_that_is_woken_hears_something_too() -> None:
    """The main thread waits for it in Future.result(), and is not woken before it is done."""
    fifo = Descriptor(4, "fifo", "/data/list")
    looks = [reads_in_a_helper(at, waits, fifo) for at, waits in ((0, 5), (3, 5), (6, 6))]
    assert find_peer_request(looks[:2]) is None
    found = find_peer_request(looks)
    assert found is not None
    assert (found.at, found.heard, found.answered) == (6.0, True, False)


def test_but_not_by_what_a_process_of_the_job_writes() -> None:
    pipe = Descriptor(4, "pipe", "pipe:[17]", other_ends=(101,))
    looks = [reads_in_a_helper(at, at, pipe) for at in (0, 3)]
    assert find_peer_request(looks, ours={100, 101}) is None
    assert find_peer_request(looks, ours={100}) is not None


def test_what_processes_of_the_job_ask_one_another_is_none() -> None:
    inside = replace(PEER, peer_pids=(101,))
    looks = [recv(0, 100, 400, inside), recv(3, 330, 800, inside)]
    assert find_peer_request(looks, ours={100, 101}) is None
    assert find_peer_request(looks, ours={100}) is not None


def test_a_child_may_be_the_one_that_asks() -> None:
    child = [recv(0, 100, 400), recv(3, 330, 800)]
    found = find_peer_request([seen(0), seen(3)], [child])
    assert found is not None
    assert found.answered


def test_a_connection_made_while_a_look_was_taken_hides_nothing() -> None:
    unknown = replace(fd_of(replace(PEER, inode=8)), socket=None)
    between = seen(2, kernel=(in_call("recvfrom", unknown),))
    assert find_peer_request([on(7, 0), between, on(8, 3)]) is not None


def test_the_last_sign_counts() -> None:
    looks = [recv(0, 100, 400), recv(3, 330, 800), recv(4, 330, 800), on(8, 6)]
    found = find_peer_request(looks)
    assert found is not None
    assert (found.at, found.text) == (6.0, "asks 127.0.0.1:8000 anew")
    assert find_peer_request(looks[:1]) is None


def test_who_has_the_other_end_is_kept_where_a_look_had_no_time_to_ask() -> None:
    """On a busy machine ranks that waited at the store of rank 0 were blamed with it, for the last
    look did not say whose process that was.
    """
    known = replace(PEER, peer_pids=(77,), peer_names=("python",))
    pipe = Descriptor(4, "pipe", "pipe:[17]", other_ends=(78,))
    before = seen(0, kernel=(in_call("poll", fd_of(known), pipe),), sockets=(known,))
    late = seen(3, kernel=(in_call("poll", fd_of(PEER), replace(pipe, other_ends=())),))
    late = replace(late, sockets=(PEER,))
    assert complete_look(before, late) == late  # it was asked: nobody has it any more
    unasked = replace(late, missing=(ENDS_UNKNOWN,))
    kept = complete_look(before, unasked)
    assert kept.sockets == (known,)
    assert [one for _, one in find_awaited_descriptors(kept)] == [fd_of(known), pipe]
    closed = replace(unasked, sockets=(replace(PEER, state="CLOSE_WAIT"),))
    assert complete_look(before, closed).sockets == closed.sockets
