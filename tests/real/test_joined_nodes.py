"""Jobs on several hosts whose monitors talk to each other: one verdict, right about rank and host.

No shared folder: nothing but the link joins them. The programs need no library: ranks meet over
sockets of their own, so what one waits for lies on another host.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from typing import Any

import hosts_services
import pytest
from hangbisect.monitor.clocks import OTHER_NODES_LIMIT
from hosts import Host, Hosts
from jobs import clean_environ
from joined_hosts import MEETS, environ_of

from ..link.test_munge import prepare_munge, wait_for_munged
from .hosts_here import DEADLINE, HostsHere, Started, verdicts
from .terminal_here import Terminal
from .test_several_hosts import HANGBISECT, PYTHON, TORCHRUN, shown


def start(
    hosts_here: HostsHere,
    made: Hosts,
    *words: str,
    on_hang: str = "report",
    run_dir: str = "run",
    **more: str,
) -> list[Started]:
    """Start one rank on each host, watched."""
    environs = [environ_of(number, len(made.all), **more) for number in range(len(made.all))]
    return start_with(hosts_here, made, environs, *words, on_hang=on_hang, run_dir=run_dir)


def start_with(
    hosts_here: HostsHere,
    made: Hosts,
    environs: Sequence[dict[str, str]],
    *words: str,
    on_hang: str = "report",
    run_dir: str = "run",
) -> list[Started]:
    """Start one rank on each host, watched, with variables of its own."""
    run = [HANGBISECT, "run", "--stall", "4", "--on-hang", on_hang]
    run += ["--run-dir", run_dir, "--"] if run_dir else ["--"]
    started = []
    for host, environ in zip(made.all, environs, strict=True):
        (host.inside_folder / "meets.py").write_text(MEETS)
        started.append(hosts_here.start(host, *run, PYTHON, "meets.py", *words, env=environ))
    return started


def told(host: Host) -> dict[str, Any]:
    """Return the verdict in a host's own folder, {} while there is none."""
    found = verdicts(host.inside_folder / "run")
    return next(iter(found.values()), {})


def until_told(hosts: list[Host], started: list[Started]) -> None:
    """Wait until each of these hosts has a verdict, and one was printed: files come first."""
    end = time.monotonic() + DEADLINE
    while not (all(told(host) for host in hosts) and any(map(headings, started))):
        assert time.monotonic() < end, shown(started)
        time.sleep(0.2)


def end_all(started: list[Started]) -> None:
    for one in started:
        one.signal(signal.SIGTERM)
    for one in started:
        one.end(60)


def headings(one: Started) -> list[str]:
    """Return the first line of each verdict that was printed."""
    words = ("HANG  ", "SILENT  ", "CRASH  ", "OK  ")
    return [line for line in one.said().splitlines() if line.startswith(words)]


def listening(host: Host) -> list[str]:
    """Return the TCP ports on which a host is listened to."""
    done = host.run(["ss", "-Htln"], folder="/")
    return [line.split()[3] for line in done.stdout.splitlines()]


def test_a_culprit_on_another_host_is_named_in_one_verdict(hosts_here: HostsHere) -> None:
    made = hosts_here.make(3, shared=False)
    started = start(hosts_here, made, "2", "fifo", "1000")
    until_told(made.all, started)
    for host in made.all:
        found = told(host)
        assert found["ranks"]["culprit"] == [2], shown(started)
        assert found["where"][0]["host"] == "n3"
        assert found["seen_ranks"] == [0, 1, 2]
        assert [one["name"] for one in found["nodes"]] == ["n1", "n2", "n3"]
        assert all(one["seen"] for one in found["nodes"])
        assert not found["partial"]
        assert found["schema"] == 2
    made.until(lambda: all("verdict comes" in one.said() for one in started[1:]), "not told")
    assert len(headings(started[0])) == 1, shown(started)
    for one in started[1:]:
        assert headings(one) == [], shown(started)
        assert "the verdict comes from n1" in one.said()
    end_all(started)


def test_a_node_for_which_the_master_is_another_machine_of_the_job_is_joined(
    hosts_here: HostsHere,
) -> None:
    """That machine's monitor says where the lead is. Rank 2 asks there for ever for rank 0."""
    made = hosts_here.make(3, shared=False)
    environs = [environ_of(n, 3) | ({"MASTER_ADDR": "n2"} if n == 2 else {}) for n in range(3)]
    started = start_with(hosts_here, made, environs, "-1", "none", "1000")
    made.until(lambda: "3 nodes are joined" in started[0].said(), "not joined", DEADLINE)
    until_told(made.all, started)
    for host in made.all:
        assert [one["name"] for one in told(host)["nodes"]] == ["n1", "n2", "n3"], shown(started)
        assert 1 not in told(host)["ranks"]["culprit"]
    assert [len(headings(one)) for one in started] == [1, 0, 0], shown(started)
    assert not [port for port in listening(made[1]) if ":294" in port]  # all have come
    end_all(started)


def test_on_slurm_munge_joins_nodes_that_have_no_token(hosts_here: HostsHere) -> None:
    """Each node has a munged, and all have the same key."""
    made = hosts_here.make(2, shared=False)
    key, seen_as = os.urandom(32), made.folder / "munge"
    for host in made.all:
        folder = host.inside_folder / "munge"
        folder.mkdir()
        made.daemon(host, *prepare_munge(folder, seen_as, key))
        wait_for_munged(folder)
    slurm = {"HANGBISECT_TOKEN": "", "SLURM_JOB_ID": "7"}
    slurm["PATH"] = f"{seen_as / 'bin'}:{os.environ['PATH']}"
    started = start(hosts_here, made, "1", "fifo", "1000", run_dir="", **slurm)
    made.until(lambda: len(headings(started[0])) == 1, "no verdict", DEADLINE)
    made.until(lambda: "verdict comes from n1" in started[1].said(), "not told", DEADLINE)
    assert "rank 1 n2" in started[0].said(), shown(started)
    end_all(started)


WAITS_FOR_ANOTHER = """
import os, socket, threading, time

def first(given):
    if given.context.place.rank == 0:
        socket.create_server(("", 9100)).accept()[0].recv(1)
    while True:
        try:
            asking = socket.create_connection(("n1", 9100))
            break
        except OSError:
            time.sleep(0.1)
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()
"""


def test_without_any_token_the_first_host_shows_what_all_tell_and_each_judges(
    hosts_here: HostsHere,
) -> None:
    """No token, no run folder that was asked for, no munge: nothing proves who a node is."""
    made = hosts_here.make(2, shared=False)
    words = ["--until", "logs_directory", "--use", "logs_directory=waits:first", "--stall", "4"]
    words += ["--timeout", "10", "--on-hang", "report"]
    started = []
    for number, host in enumerate(made.all):
        (host.inside_folder / "waits.py").write_text(WAITS_FOR_ANOTHER)
        environ = environ_of(number, 2, HANGBISECT_TOKEN="")
        started.append(hosts_here.start(host, PYTHON, "-m", "bisect", *words, env=environ))
    made.until(lambda: "rank 1 n2 " in started[0].said(), "not shown", DEADLINE)
    found = next(iter(verdicts(made[0].inside_folder / "runs").values()))
    assert any("not proved to be of this job" in note for note in found["notes"]), found
    assert found["outcome"] == "silent", shown(started)  # the other's proof is its own affair
    assert started[0].said().count("No token joins the nodes") == 1, shown(started)
    made.until(lambda: bool(headings(started[1])), "no verdict of its own", DEADLINE)
    assert "comes from" not in started[1].said(), shown(started)
    end_all(started)


def test_a_run_on_each_host_without_a_token_in_common_ends_no_rank_by_what_others_tell(
    hosts_here: HostsHere,
) -> None:
    """Each has a run folder of its own: the token that the first leaves there reaches nobody. What
    no node can prove by itself, for that it would end.
    """
    made = hosts_here.make(3, shared=False)
    started = start(hosts_here, made, "1", "fifo", "1000", on_hang="end", HANGBISECT_TOKEN="")
    made.until(lambda: "rank 1 n2 " in started[0].said(), "not shown", DEADLINE)
    found = told(made[0])
    assert any("not proved to be of this job" in note for note in found["notes"]), found
    assert (found["outcome"], found["ranks"]["culprit"]) == ("silent", [1]), shown(started)
    assert started[0].said().count("No token joins the nodes") == 1, shown(started)
    made.until(lambda: bool(headings(started[1])), "no verdict of its own", DEADLINE)
    assert all("comes from" not in one.said() for one in started), shown(started)
    end_all(started)


def test_without_a_token_a_rank_that_fails_beside_the_lead_is_the_verdict_there(
    hosts_here: HostsHere,
) -> None:
    """Its command has ended: it is not waited for long what the others tell."""
    made = hosts_here.make(2, shared=False)
    started = start(hosts_here, made, "0", "crash", "1000", HANGBISECT_TOKEN="")
    assert all(one.end() != 0 for one in started), shown(started)
    crashes = [line for line in headings(started[0]) if line.startswith("CRASH")]
    assert len(crashes) == 1, shown(started)
    assert told(made[0])["ranks"]["culprit"] == [0], shown(started)
    made.until(lambda: not any(host.left() for host in made), "something is left")


def test_a_token_that_comes_late_to_a_shared_folder_joins_the_nodes(hosts_here: HostsHere) -> None:
    """Until then this node proves nothing, and is heard all the same."""
    made = hosts_here.make(2, shared=False)
    started = start(hosts_here, made, "-1", "none", "1000", HANGBISECT_TOKEN="")
    token = made[0].inside_folder / "run" / "link.json"
    made.until(lambda: "No token joins the nodes" in started[0].said(), "not heard", DEADLINE)
    late = made[1].inside_folder / "run" / "link.json"
    late.parent.mkdir(exist_ok=True)
    late.touch(0o600)
    late.write_bytes(token.read_bytes())
    made.until(lambda: joined(started) != "", "they are not joined", DEADLINE)
    end_all(started)


def test_who_watches_mpirun_from_a_host_without_ranks_gives_the_one_verdict(
    hosts_here: HostsHere,
) -> None:
    """Mpirun passes no variables on: no rank is watched where it is, and no folder is shared."""
    if why_not := hosts_services.ssh_missing():
        pytest.skip(why_not)
    made = hosts_here.make(3, shared=False)
    hosts_services.start_ssh(made)
    for host in made.all:
        (host.inside_folder / "meets.py").write_text(MEETS)
    (made[0].inside_folder / "hostfile").write_text("n2 slots=1\nn3 slots=1\n")
    numbers = "RANK=$OMPI_COMM_WORLD_RANK WORLD_SIZE=2 MASTER_ADDR=n2 MASTER_PORT=29400"
    words = ["mpirun", "--allow-run-as-root", "--hostfile", made.folder / "hostfile", "-x", "PATH"]
    words += ["sh", "-c", f"{numbers} exec {PYTHON} meets.py 1 fifo 1000"]
    run = [HANGBISECT, "run", "--stall", "4", "--run-dir", "run", "--"]
    started = [hosts_here.start(made[0], *run, *words)]
    until_told(made.all[:1], started)
    made.until(lambda: "report  " in started[0].said(), "not printed", DEADLINE)
    found = told(made[0])
    assert (found["ranks"]["culprit"], found["where"][0]["host"]) == ([1], "n3"), shown(started)
    assert found["command"][0] == "mpirun", found["command"]  # not what mpirun starts there
    assert len(headings(started[0])) == 1, shown(started)
    assert not any(verdicts(host.inside_folder / "run") for host in made.all[1:])
    end_all(started)


def test_a_proved_hang_ends_the_ranks_of_all_hosts(hosts_here: HostsHere) -> None:
    made = hosts_here.make(2, shared=False)
    started = start(hosts_here, made, "1", "lock", "1000", on_hang="end")
    assert [one.end() for one in started] == [3, 3], shown(started)
    assert [told(host)["ranks"]["culprit"] for host in made.all] == [[1], [1]]
    made.until(lambda: not any(host.left() for host in made), "something is left")


def test_a_crash_on_one_host_is_one_verdict_whatever_becomes_of_the_others(
    hosts_here: HostsHere,
) -> None:
    """The others lose their peer by it, and fail as well."""
    made = hosts_here.make(3, shared=False)
    started = start(hosts_here, made, "1", "crash", "1000")
    assert all(one.end() != 0 for one in started), shown(started)
    printed = [line.split()[0] for one in started for line in headings(one)]
    # Between two of its steps the job may be silent for the four seconds of --stall.
    assert [word for word in printed if word != "SILENT"] == ["CRASH"], shown(started)
    found = told(made[0])
    assert (found["outcome"], found["ranks"]["culprit"]) == ("crash", [1]), shown(started)
    made.until(lambda: not any(host.left() for host in made), "something is left")


def test_who_ended_well_on_one_host_is_told_from_who_waits_on_another(
    hosts_here: HostsHere,
) -> None:
    made = hosts_here.make(2, shared=False)
    started = start(hosts_here, made, "1", "leave", "1000")
    until_told(made.all[:1], started)
    found = told(made[0])
    assert found["ranks"]["culprit"] == [1], shown(started)
    assert found["cause"]["id"] == "rank-left", shown(started)
    end_all(started)


def test_a_host_that_dies_is_named_with_its_last_word(hosts_here: HostsHere) -> None:
    made = hosts_here.make(3, shared=False)
    started = start(hosts_here, made, "-1", "none", "1000")
    made.until(lambda: joined(started) != "", "they are not joined")
    time.sleep(6)
    assert not any(map(headings, started)), shown(started)  # they are healthy so far
    made[2].die()
    until_told(made.all[:2], started)
    found = told(made[0])
    assert found["partial"], shown(started)
    assert found["cause"]["id"] == "node-lost", shown(started)
    lost = next(one for one in found["nodes"] if not one["seen"])
    assert lost["name"] == "n3"
    assert "rank 2" in lost["why_not"]
    assert found["ranks"]["culprit"] == []
    assert sum(len(headings(one)) for one in started) == 1, shown(started)
    end_all(started[:2])


def test_whoever_is_cut_off_judges_for_itself_and_says_whom_it_does_not_see(
    hosts_here: HostsHere,
) -> None:
    made = hosts_here.make(3, shared=False)
    started = start(hosts_here, made, "-1", "none", "1000")
    made.until(lambda: joined(started) != "", "they are not joined")
    time.sleep(6)
    assert not any(map(headings, started)), shown(started)  # they are healthy so far
    made.cut(made[2])
    until_told(made.all, started)
    for host, ranks in ((made[0], [0, 1]), (made[2], [2])):
        found = told(host)
        assert found["seen_ranks"] == ranks, shown(started)
        assert found["ranks"]["culprit"] == []
    alone = told(made[2])
    assert any("n1 (rank 0) is not seen from here" in note for note in alone["notes"]), alone
    assert alone["cause"]["id"] == "node-lost"
    end_all(started)


def test_the_next_node_leads_once_the_lead_is_lost(hosts_here: HostsHere) -> None:
    """Who is left is one job still: one verdict, by the first of them, which names who is lost."""
    made = hosts_here.make(3, shared=False)
    started = start(hosts_here, made, "-1", "none", "1000")
    made.until(lambda: joined(started) != "", "they are not joined")
    time.sleep(6)
    assert not any(map(headings, started)), shown(started)  # they are healthy so far
    made[0].die()
    until_told(made.all[1:], started)
    for host in made.all[1:]:
        found = told(host)
        assert found["ranks"]["culprit"] == [], shown(started)
        assert found["seen_ranks"] == [1, 2], shown(started)
        assert found["cause"]["id"] == "node-lost"
        assert found["partial"]
        assert [(one["name"], one["seen"]) for one in found["nodes"]] == [
            *(("n1", False), ("n2", True), ("n3", True))
        ]
    made.until(lambda: "verdict comes from n2" in started[2].said(), "not told")
    assert [len(headings(one)) for one in started[1:]] == [1, 0], shown(started)
    assert any(":294" in one for one in listening(made[1]))
    end_all(started[1:])
    made.until(lambda: not any(host.left() for host in made.all[1:]), "something is left")


def test_who_led_meanwhile_gives_way_to_the_first_lead_when_that_is_back(
    hosts_here: HostsHere,
) -> None:
    made = hosts_here.make(3, shared=False)
    started = start(hosts_here, made, "-1", "none", "1000")
    made.until(lambda: joined(started) != "", "they are not joined")
    time.sleep(2)
    made.cut(made[0])
    made.until(lambda: "leads the nodes" in started[1].said(), "nobody leads")
    made.heal()
    made.until(lambda: "n2 is heard again" in started[0].said(), "not heard again")
    made.until(lambda: "n3 is heard again" in started[0].said(), "not heard again")
    made.until(lambda: not any(":294" in one for one in listening(made[1])), "it still listens")
    end_all(started)


def test_a_healthy_job_is_left_alone_and_nothing_listens_afterwards(
    hosts_here: HostsHere,
) -> None:
    made = hosts_here.make(2, shared=False)
    started = start(hosts_here, made, "-1", "none", "30", on_hang="end")
    assert [one.end() for one in started] == [0, 0], shown(started)
    assert all(told(host)["outcome"] == "ok" for host in made.all)
    made.until(lambda: not any(host.left() for host in made), "something is left")


ENDS = """
import os, time
rank = int(os.environ["RANK"])
for second in range(6 if rank == int(os.environ["FIRST"]) else 16):
    print("second", second, flush=True)
    time.sleep(1)
"""


def run_to_the_end(hosts_here: HostsHere, made: Hosts, first: int) -> list[Started]:
    """Run ranks of which one ends ten seconds before the others."""
    started = []
    for number, host in enumerate(made.all):
        (host.inside_folder / "ends.py").write_text(ENDS)
        environ = environ_of(number, len(made.all), FIRST=str(first))
        words = [HANGBISECT, "run", "--run-dir", "run", "--", PYTHON, "ends.py"]
        started.append(hosts_here.start(host, *words, env=environ))
    assert [one.end() for one in started] == [0] * len(started), shown(started)
    return started


def test_a_script_that_ends_well_on_all_hosts_is_told_once(hosts_here: HostsHere) -> None:
    made = hosts_here.make(3, shared=False)
    started = start(hosts_here, made, "-1", "none", "20")
    assert [one.end() for one in started] == [0, 0, 0], shown(started)
    assert [len(headings(one)) for one in started] == [1, 0, 0], shown(started)
    assert "OK  3 ranks on 3 hosts" in started[0].said(), shown(started)
    for one in started[1:]:
        assert "All ranks here have ended well; the verdict comes from n1" in one.said()
    for host in made.all:
        found = told(host)
        assert (found["outcome"], found["seen_ranks"]) == ("ok", [0, 1, 2]), shown(started)
        assert [(one["name"], one["seen"]) for one in found["nodes"]] == [
            *(("n1", True), ("n2", True), ("n3", True))
        ]
    made.until(lambda: not any(host.left() for host in made), "something is left")


def test_a_walk_that_ends_well_on_all_hosts_is_told_once_with_its_slowest_step(
    hosts_here: HostsHere,
) -> None:
    made = hosts_here.make(2, shared=False)
    slow = "import time\ndef first(given): time.sleep(1.2 * given.context.place.rank)\n"
    started = []
    for number, host in enumerate(made.all):
        (host.inside_folder / "slow.py").write_text(slow)
        words = ["--until", "logs_directory", "--use", "logs_directory=slow:first"]
        ours = [PYTHON, "-m", "bisect", "--run-dir", "run", *words]
        started.append(hosts_here.start(host, *ours, env=environ_of(number, 2)))
    assert [one.end() for one in started] == [0, 0], shown(started)
    assert [len(headings(one)) for one in started] == [1, 0], shown(started)
    assert "OK  startup, 2 ranks on 2 hosts, " in started[0].said(), shown(started)
    assert "slowest step 3 Logs directory ready 1." in started[0].said(), shown(started)
    assert " on n2\n" in started[0].said(), shown(started)
    assert "the verdict comes from n1" in started[1].said()
    made.until(lambda: not any(host.left() for host in made), "something is left")


WAITS_FOR_A_FILE = """
import os, time

def first(given):
    os.chdir(os.getcwd())  # nsenter has opened it before it came to this host
    while not os.path.exists("enough"):
        time.sleep(0.2)
"""


def test_one_table_shows_the_ranks_of_all_hosts_and_the_others_say_where(
    hosts_here: HostsHere,
) -> None:
    """Each host has a terminal of its own."""
    made = hosts_here.make(2, shared=False)
    words = ["--until", "logs_directory", "--use", "logs_directory=slow:first"]
    words += ["--run-dir", "run", "--stall", "100"]
    terminals = [Terminal(columns=100), Terminal(columns=100)]
    try:
        for number, host in enumerate(made.all):
            (host.inside_folder / "slow.py").write_text(WAITS_FOR_A_FILE)
            environ = clean_environ() | environ_of(number, 2) | {"TERM": "xterm-256color"}
            terminals[number].start([*host.words(), PYTHON, "-m", "bisect", *words], environ)
        first, second = terminals
        first.until(lambda lines: any("hangbisect: 2 ranks on 2 hosts" in one for one in lines))
        lines = first.until(lambda lines: any(one.startswith("0-1 ") for one in lines))
        assert any("3 Logs directory ready" in one and one.startswith("0-1 ") for one in lines)
        second.until(lambda lines: any("The table of all ranks is on n1" in one for one in lines))
        second.until(lambda lines: not any("-- hangbisect: " in one for one in lines))
        for host in made.all:
            (host.inside_folder / "enough").touch()
        assert [one.wait() for one in terminals] == [0, 0]
        assert any("OK  startup, 2 ranks on 2 hosts" in one for one in first.everything())
    finally:
        for one in terminals:
            one.close()


def test_whose_ranks_have_ended_first_says_who_tells_of_all(hosts_here: HostsHere) -> None:
    made = hosts_here.make(2, shared=False)
    started = run_to_the_end(hosts_here, made, first=1)
    assert [len(headings(one)) for one in started] == [1, 0], shown(started)
    assert "OK  2 ranks on 2 hosts" in started[0].said(), shown(started)
    assert "the verdict comes from n1" in started[1].said(), shown(started)


def test_who_led_and_has_ended_first_tells_of_its_own_ranks(hosts_here: HostsHere) -> None:
    """Nobody leads the others any more: each tells of its own."""
    made = hosts_here.make(2, shared=False)
    started = run_to_the_end(hosts_here, made, first=0)
    for one in started:
        assert len(headings(one)) == 1, shown(started)
        assert "OK  1 of 2 ranks, those of this node" in one.said(), shown(started)


def test_nodes_that_are_not_joined_each_tell_how_they_ended(hosts_here: HostsHere) -> None:
    made = hosts_here.make(2, shared=False)
    started = start(hosts_here, made, "-1", "none", "5", HANGBISECT_NODES="off")
    assert [one.end() for one in started] == [0, 0], shown(started)
    for one in started:
        assert "OK  1 of 2 ranks, those of this node" in one.said(), shown(started)


def test_who_is_at_work_on_another_host_is_waited_for(hosts_here: HostsHere) -> None:
    """Rank 0 waits for a rank that computes: nothing is said of it."""
    made = hosts_here.make(2, shared=False)
    started = start(hosts_here, made, "1", "spin", "1000")
    time.sleep(15)
    assert sum(len(headings(one)) for one in started) == 0, shown(started)
    end_all(started)


def test_with_the_link_off_no_port_is_opened(hosts_here: HostsHere) -> None:
    made = hosts_here.make(2, shared=False)
    started = start(hosts_here, made, "-1", "none", "1000", HANGBISECT_NODES="off")
    made.until(lambda: all("This watch is" in one.said() for one in started), "no watch")
    time.sleep(8)
    assert [port for port in listening(made[0]) if ":294" in port] == [], shown(started)
    end_all(started)


def joined(started: list[Started]) -> str:
    """Return what says that all are joined, "" before."""
    said = started[0].said()
    return next((line for line in said.splitlines() if "one verdict on all" in line), "")


def test_before_any_rank_one_verdict_names_who_has_come_and_who_has_not(
    hosts_here: HostsHere,
) -> None:
    """Agents of torchrun on two of three nodes wait for the third, which is never started: there is
    no rank, and no monitor. Nobody is called hung, for a node may still boot.
    """
    made = hosts_here.make(2, shared=False)
    started = []
    for number, host in enumerate(made.all):
        (host.inside_folder / "meets.py").write_text(MEETS)
        agent = ["--nnodes=3", f"--node-rank={number}", "--nproc-per-node=1"]
        agent += ["--master-addr=n1", "--master-port=29400", "meets.py"]
        run = [HANGBISECT, "run", "--run-dir", "run", "--stall", "3", "--", TORCHRUN]
        environ = {"HANGBISECT_TOKEN": "a" * 32}
        started.append(hosts_here.start(host, *run, *agent, env=environ))
    until_told(made.all, started)
    for host in made.all:
        found = told(host)
        assert (found["outcome"], found["cause"]["id"]) == ("silent", "nodes-not-joined")
        assert "2 of 3 nodes are at the rendezvous" in found["waits_for"]["detail"], found
        assert [one["name"] for one in found["nodes"]] == ["n1", "n2"]
        assert found["partial"]
        assert "none of the 2 nodes that are seen has --node-rank 2" in found["notes"]
    made.until(lambda: "verdict comes" in started[1].said(), "not told")
    assert [len(headings(one)) for one in started] == [1, 0], shown(started)
    assert any(":294" in one and not one.endswith(":29400") for one in listening(made[0]))
    end_all(started)
    made.until(lambda: not any(host.left() for host in made), "something is left")


LOOKS_FOR_THE_FIRST = """
import os, socket
socket.create_connection((os.environ["MASTER_ADDR"], 9100))
"""


@pytest.mark.parametrize("kind", ["agents", "ranks"])
def test_nodes_that_share_a_folder_give_one_verdict_where_the_first_never_came(
    hosts_here: HostsHere, kind: str
) -> None:
    """Nobody leads them, and no token was given: by the folder they know of each other."""
    made = hosts_here.make(3)
    (made.folder / "meets.py").write_text(LOOKS_FOR_THE_FIRST)
    made[0].die()
    started = []
    for number, host in enumerate(made.all[1:], start=1):
        run = [HANGBISECT, "run", "--run-dir", "run", "--stall", "3", "--"]
        agent = ["--nnodes=3", f"--node-rank={number}", "--nproc-per-node=1"]
        agent += ["--master-addr=n1", "--master-port=29400", "meets.py"]
        environ = {**environ_of(number, 3), "HANGBISECT_TOKEN": ""} if kind == "ranks" else {}
        words = [TORCHRUN, *agent] if kind == "agents" else [PYTHON, "meets.py"]
        started.append(hosts_here.start(host, *run, *words, env=environ))
    made.until(lambda: "verdict comes from n2" in started[1].said(), "not told", DEADLINE)
    made.until(lambda: len(headings(started[0])) == 1, "no verdict", DEADLINE)
    assert headings(started[1]) == [], shown(started)
    for found in verdicts(made.folder).values():
        assert found["outcome"] == "silent", shown(started)
        assert found["ranks"]["culprit"] == []
        assert [one["name"] for one in found["nodes"]] == ["n2", "n3"]
        assert all(one["seen"] for one in found["nodes"])
        assert found["partial"]
    end_all(started)
    made.until(lambda: not list(made.folder.glob("**/waiting-*")), "what they left for each other")


def test_agents_that_can_never_meet_are_told_before_a_node_has_had_time_to_boot(
    hosts_here: HostsHere,
) -> None:
    """Each waits for another number of nodes. A third node may still come: that would not help."""
    made = hosts_here.make(2, shared=False)
    started = []
    for number, host in enumerate(made.all):
        (host.inside_folder / "meets.py").write_text(MEETS)
        agent = [f"--nnodes={3 + number}", f"--node-rank={number}", "--nproc-per-node=1"]
        agent += ["--master-addr=n1", "--master-port=29400", "meets.py"]
        run = [HANGBISECT, "run", "--run-dir", "run", "--stall", "3", "--", TORCHRUN]
        environ = {"HANGBISECT_TOKEN": "a" * 32}
        started.append(hosts_here.start(host, *run, *agent, env=environ))
    until_told(made.all, started)
    for host in made.all:
        found = told(host)
        assert (found["outcome"], found["cause"]["id"]) == ("silent", "nodes-not-joined")
        assert any("--nnodes is 3 on n1 and 4 on n2" in note for note in found["notes"]), found
        assert found["seconds"]["still"] < OTHER_NODES_LIMIT
    assert sum(len(headings(one)) for one in started) == 1, shown(started)
    end_all(started)


def test_agents_that_each_meet_on_their_own_machine_find_one_another(
    hosts_here: HostsHere,
) -> None:
    """No node has the address of another one: they ask on their network, and the first leads."""
    made = hosts_here.make(3, shared=False)
    started = []
    for host in made.all:
        (host.inside_folder / "meets.py").write_text(MEETS)
        agent = ["--nnodes=3", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:29400", "meets.py"]
        run = [HANGBISECT, "run", "--run-dir", "run", "--stall", "3", "--", TORCHRUN]
        environ = {"HANGBISECT_TOKEN": "a" * 32}
        started.append(hosts_here.start(host, *run, *agent, env=environ))
    until_told(made.all[:1], started)
    found = told(made[0])
    assert (found["outcome"], found["cause"]["id"]) == ("silent", "nodes-not-joined")
    assert any("localhost:29400 is each machine itself" in note for note in found["notes"]), found
    made.until(lambda: "comes from n1" in started[2].said(), "not told", DEADLINE)
    assert [len(headings(one)) for one in started] == [1, 0, 0], shown(started)
    end_all(started)


SENDS = """
import os, socket, time
number, first = int(os.environ["RANK"]), os.environ["MASTER_ADDR"]
if number == 0:
    server = socket.create_server(("", 29400))
    connection, _ = server.accept()
else:
    while True:
        try:
            connection = socket.create_connection((first, 29400))
            break
        except ConnectionRefusedError:
            time.sleep(0.1)
for turn in range(100000):
    connection.sendall(b"gradients")
    assert connection.recv(9, socket.MSG_WAITALL) == b"gradients"
    time.sleep(0.05)
"""


def close_all_ports(host: Host, *but: str) -> None:
    """Let no packet out that is not from or to these ports, over what is open already too."""
    rules = [("10", side, ports, "lookup", "main") for side in ("sport", "dport") for ports in but]
    for pref, side, ports, *action in rules:
        assert (
            host.run(
                ["ip", "rule", "add", "pref", pref, "ipproto", "tcp", side, ports, *action]
            ).returncode
            == 0
        )
    closed = [
        "ip",
        "rule",
        "add",
        "pref",
        "20",
        "ipproto",
        "tcp",
        "to",
        "10.77.0.0/24",
        "blackhole",
    ]
    assert host.run(closed).returncode == 0


def test_nobody_is_blamed_for_a_network_between_two_nodes_that_lets_nothing_through(
    hosts_here: HostsHere,
) -> None:
    """The monitors still hear each other: they talk over other ports."""
    made = hosts_here.make(2, shared=False)
    started = []
    for number, host in enumerate(made.all):
        (host.inside_folder / "sends.py").write_text(SENDS)
        run = [HANGBISECT, "run", "--run-dir", "run", "--stall", "4", "--", PYTHON, "sends.py"]
        started.append(hosts_here.start(host, *run, env=environ_of(number, 2)))
    made.until(lambda: bool(joined(started)), "not joined")
    close_all_ports(made[1], "29401-29408")
    until_told(made.all, started)
    found = told(made[0])
    assert found["ranks"]["culprit"] == [], shown(started)
    assert found["cause"]["id"] == "network-between-nodes", shown(started)
    assert "n1 and n2 do not reach each other" in found["cause"]["why"]
    assert found["outcome"] == "silent"  # a network may come back
    end_all(started)
