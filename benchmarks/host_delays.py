"""Hosts of hosts.py between which everything takes longer: shell commands for one host.

Frames between eth0, as it is from then on, and the wire go through a program: a qdisc that delays
is not in every kernel. The header of each frame is virtio_net's, for checksums are partial.
"""

from __future__ import annotations

_PREPARE = """\
ip link set eth0 down && ip link set eth0 name wire0 && ip link add eth0 type veth peer name in0 &&
ip link set wire0 up promisc on && ip link set in0 up promisc on &&
ip addr flush dev wire0 && ip addr add 10.77.0.{number}/24 dev eth0 && ip link set eth0 up"""
_RELAY = """\
python -c "
import collections, os, select, socket, time
ends = []
for name in ('in0', 'wire0'):
    end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    end.setsockopt(263, 15, 1)
    end.bind((name, 3))
    ends.append(end)
late = collections.deque()
while True:
    wait = max(0.0, late[0][0] - time.monotonic()) if late else 1.0
    for end in select.select(ends, [], [], wait)[0]:
        frame, about = end.recvfrom(1 << 17)
        if about[2] != socket.PACKET_OUTGOING:
            delay = {seconds} if not '{once}' or os.path.exists('{once}') else 0.0
            late.append((time.monotonic() + delay, ends[end is ends[0]], frame))
    while late and late[0][0] <= time.monotonic():
        try:
            late[0][1].send(late[0][2])
        except OSError:
            pass
        late.popleft()
\""""


def prepare_relay(number: int) -> str:
    """Return what is to be done on the host of this number before its relay is started."""
    return _PREPARE.format(number=number)


def relay(seconds: float, once: str = "") -> str:
    """Return the program that delays each frame by so long, there and back; `once` names a file of
    the host: as long as it is not there, nothing is delayed.
    """
    return _RELAY.format(seconds=seconds, once=once)
