"""Where ranks meet."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hangbisect.base.process_facts import Look, Socket
from hangbisect.base.rank_facts import Collective, CollectiveLog, LostNode

from ..made_up import ALL_REDUCE, GROUP, SLEEP, job, look, rank
from .scenes import (
    MAKES_GROUP,
    MAKES_STORE,
    TORCHRUN,
    Facts,
    Shows,
    causes_of,
    on,
    tcp,
    with_locals,
)

TWO_NODES = {**TORCHRUN, "GROUP_WORLD_SIZE": "2", "WORLD_SIZE": "4"}


def duplicate_rank() -> Facts:
    one = with_locals(look(*MAKES_STORE, call="poll"), "_create_c10d_store", rank=0, world_size=2)
    return job(), [rank(0, one), rank(1, one)]


def more_joins_than_world() -> Facts:
    said = (
        "Waiting in store based barrier to initialize process group for 10 secondsrank: 0, key: "
        "store_based_barrier_key:1 (world_size=2, num_workers_joined=4, timeout=0:30:00 error=x)"
    )
    ranks = [rank(n, GROUP, environment=TORCHRUN, output=(said,)) for n in (0, 1)]
    return job(), ranks


def different_master() -> Facts:
    other = {**TORCHRUN, "MASTER_PORT": "29501"}
    return job(), [rank(0, GROUP, environment=TORCHRUN), rank(1, GROUP, environment=other)]


def different_world() -> Facts:
    sizes = {0: 3, 1: 4, 2: 3}
    one = look(*MAKES_STORE, call="poll")
    looks = {
        n: with_locals(one, "_create_c10d_store", rank=n, world_size=size)
        for n, size in sizes.items()
    }
    return job(world=3), [rank(n, each) for n, each in looks.items()]


def other_node_missing() -> Facts:
    away = {**TWO_NODES, "MASTER_ADDR": "10.0.0.1"}
    ranks = [rank(n, GROUP, environment=away) for n in (0, 1)]
    return job(world=4, local_ranks=(0, 1)), ranks


def node_lost() -> Facts:
    """They were in a group with a node that is silent now."""
    lost = LostNode("n2", (2, 3), 15.0, "rank 2 at 12 First training step done")
    ranks = [rank(n, ALL_REDUCE, environment=TWO_NODES) for n in (0, 1)]
    return job(world=4, local_ranks=(0, 1), lost_nodes=(lost,)), ranks


def test_a_lost_node_is_no_cause_where_a_rank_that_is_seen_is_to_blame() -> None:
    facts, _ = node_lost()
    ranks = [rank(0, ALL_REDUCE), rank(1, SLEEP, SLEEP)]
    assert "node-lost" not in causes_of((facts, ranks))
    assert "node-lost" in causes_of(node_lost())


def master_is_loopback() -> Facts:
    ranks = [rank(n, GROUP, environment=TWO_NODES) for n in (0, 1)]
    return job(world=4, local_ranks=(0, 1)), ranks


def foreign_store() -> Facts:
    stranger = tcp("127.0.0.1:29500", peer_pids=(77,), peer_names=("nginx",))
    one = look(*MAKES_STORE, call="poll", descriptors=on(stranger), sockets=(stranger,))
    ranks = [rank(n, one, environment={**TORCHRUN, "RANK": str(n)}) for n in (0, 1)]
    return job(), ranks


def host_starts_nobody() -> Facts:
    """An mpirun that has heard from one of two hosts."""
    client = replace(look(call="poll"), pid=101, command=("ssh", "-x", "n3", "orted -mca ess env"))
    silent = {"n3": "no answer within 20 s"}
    return job(silent_hosts=silent), [rank(0, look(call="poll"), children=((client,),))]


def test_a_host_to_which_no_ssh_of_the_launcher_is_keeps_nobody() -> None:
    facts, (one,) = host_starts_nobody()
    assert "host-starts-nobody" in causes_of((facts, [one]))
    assert "host-starts-nobody" not in causes_of((facts, [replace(one, children=())]))
    assert "host-starts-nobody" not in causes_of((job(silent_hosts={"n2": "closed"}), [one]))


def store_file_not_shared() -> Facts:
    one = with_locals(
        look(*MAKES_GROUP), "init_process_group", init_method="file:///tmp/meet", world_size=2
    )
    return job(), [rank(n, one, host=f"n{n}") for n in (0, 1)]


API = "SP/torch/distributed/elastic/agent/server/api.py"


def agent_missing_at_end() -> Facts:
    """Its ranks have ended well, and it waits for the agent of a machine on which nothing runs."""
    one = look(
        "barrier SP/torch/distributed/elastic/utils/store.py:201",
        f"SimpleElasticAgent._exit_barrier {API}:994",
        f"SimpleElasticAgent._invoke_run {API}:938",
        call="poll",
    )
    return job(notes=("nothing of the job runs on n2",)), [rank(0, one)]


def test_agents_that_wait_at_the_end_ask_for_no_key_that_a_rank_was_to_set() -> None:
    found = causes_of(agent_missing_at_end())
    assert "nothing of the job runs on n2" in found["agent-missing-at-end"].why
    assert "store-key-missing" not in found


SHOWS: Shows = {
    "agent-missing-at-end": agent_missing_at_end,
    "duplicate-rank": duplicate_rank,
    "more-joins-than-world": more_joins_than_world,
    "different-master": different_master,
    "different-world": different_world,
    "other-node-missing": other_node_missing,
    "master-is-loopback": master_is_loopback,
    "node-lost": node_lost,
    "foreign-store": foreign_store,
    "host-starts-nobody": host_starts_nobody,
    "store-file-not-shared": store_file_not_shared,
}


def test_nobody_is_missing_once_a_group_was_made() -> None:
    """Whoever waits in a collective, or makes another group after one, has met the others."""
    away = {**TWO_NODES, "MASTER_ADDR": "10.0.0.1"}
    facts = job(world=4, local_ranks=(0, 1))
    in_it = [rank(n, ALL_REDUCE, environment=away) for n in (0, 1)]
    assert "other-node-missing" not in causes_of((facts, in_it))
    _, waits = other_node_missing()
    earlier = Collective("0", "all_reduce", 1, at=1.0, done=True)
    log = CollectiveLog("ring", (earlier,))
    again = [replace(one, collectives=(log,)) for one in waits]
    assert "other-node-missing" not in causes_of((facts, again))


def test_ranks_with_their_own_numbers_are_no_duplicates() -> None:
    ranks = []
    for number in (0, 1):
        one = look(*MAKES_STORE, call="poll")
        told = with_locals(one, "_create_c10d_store", rank=number, world_size=3)
        ranks.append(rank(number, told, environment={"RANK": str(number)}))
    assert "duplicate-rank" not in causes_of((job(), ranks))


def test_a_variable_that_is_the_same_on_all_ranks_is_none_where_the_script_passes_its_own() -> None:
    ranks = []
    for number in (0, 1):
        one = look(*MAKES_STORE, call="poll")
        told = with_locals(one, "_create_c10d_store", rank=number, world_size=2)
        ranks.append(rank(number, told, environment={"RANK": "0"}))
    assert "duplicate-rank" not in causes_of((job(), ranks))


def test_fewer_joins_than_ranks_are_not_too_many() -> None:
    said = "Waiting in store based barrier ... (world_size=8, worker_count=7, timeout=0:30:00)"
    ranks = [rank(n, GROUP, output=(said,)) for n in (0, 1)]
    assert "more-joins-than-world" not in causes_of((job(), ranks))


def test_two_names_of_this_machine_are_the_same_master() -> None:
    named = {**TORCHRUN, "MASTER_ADDR": "localhost"}
    ranks = [rank(0, GROUP, environment=TORCHRUN), rank(1, GROUP, environment=named)]
    assert "different-master" not in causes_of((job(), ranks))


def test_another_port_matters_only_where_the_group_is_made() -> None:
    other = {**TORCHRUN, "MASTER_PORT": "29501"}
    ranks = [rank(0, SLEEP, environment=TORCHRUN), rank(1, SLEEP, environment=other)]
    assert "different-master" not in causes_of((job(), ranks))


def test_masters_of_variables_that_are_not_used_may_differ() -> None:
    one = with_locals(look(*MAKES_GROUP), "init_process_group", init_method="tcp://10.0.0.1:4")
    ranks = [rank(n, one, environment={**TORCHRUN, "MASTER_PORT": f"2950{n}"}) for n in (0, 1)]
    assert "different-master" not in causes_of((job(), ranks))


def test_on_one_node_nobody_waits_for_another_one() -> None:
    ranks = [rank(n, GROUP, environment=TORCHRUN) for n in (0, 1)]
    found = causes_of((job(), ranks))
    assert not {"other-node-missing", "master-is-loopback"} & set(found)


def test_the_launcher_may_serve_the_store() -> None:
    agent = tcp("127.0.0.1:29500", peer_pids=(50,), peer_names=("python3",))
    one = replace(look(*MAKES_STORE, call="poll", sockets=(agent,)), ppid=50)
    assert "foreign-store" not in causes_of((job(), [rank(0, one, environment=TORCHRUN)]))


# ---- a store of the job's own making (TCPStore) that says nothing --------------------------------


def asks_for_a_store(**more: Any) -> Look:
    """A rank in torch's code that reads from a server, below a function of its own."""
    store = tcp("10.0.0.9:9300", **{"received": 0, "sent": 9, **more})
    one = look("connect /job/train.py:14", call="recvfrom", descriptors=on(store), sockets=(store,))
    call = one.kernel[0].syscall
    assert call is not None
    library = "/venv/site-packages/torch/lib/libtorch_cpu.so"
    return replace(one, kernel=(replace(one.kernel[0], syscall=replace(call, caller=library)),))


def with_others(one: Look, **more: Any) -> Facts:
    waits = [rank(n, GROUP, environment={}, host=f"n{n}", **more) for n in (0, 2)]
    return job(world=3), [waits[0], rank(1, one, environment={}, host="n1"), waits[1]]


def test_what_answers_a_store_with_nothing_is_no_store() -> None:
    found = causes_of(with_others(asks_for_a_store()))
    assert "foreign-store" in found


def test_a_store_that_has_answered_is_one() -> None:
    assert "foreign-store" not in causes_of(with_others(asks_for_a_store(received=40)))


def test_a_store_of_the_job_that_stands_still_is_no_stranger() -> None:
    listens = Socket(5, "tcp6", "[::]:9300", "", "LISTEN")
    facts, ranks = with_others(asks_for_a_store())
    first, *others = ranks
    serves = replace(first.looks[-1], sockets=(listens,))
    first = replace(first, looks=(serves,) * len(first.looks))
    assert "foreign-store" not in causes_of((facts, [first, *others]))


def test_of_a_rank_that_is_not_seen_it_may_be_the_store() -> None:
    facts, ranks = with_others(asks_for_a_store())
    assert "foreign-store" not in causes_of((facts, ranks[1:]))


def test_a_node_that_heard_two_processes_say_one_number_tells_of_them() -> None:
    ranks = [rank(0, GROUP), rank(1, GROUP), rank(2, GROUP, twin=27, host="n2")]
    found = causes_of((job(world=4), ranks))
    assert next(iter(found)) == "duplicate-rank"
    assert "rank 2" in found["duplicate-rank"].matched[0]
    waits = [rank(0, ALL_REDUCE), rank(1, ALL_REDUCE, twin=27)]
    assert "duplicate-rank" not in causes_of((job(), waits))
