"""The wait-for graph as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hangbisect.base.verdict_facts import Edge, Ranks, Verdict
from hangbisect.report.html.graph_picture import MOST, Graph, graph_picture
from hangbisect.report.html.templates import ShownTexts
from hangbisect.report.run_reader.run import RecordedRun

from .made_up import plain

Link = tuple[str, str]


def node(name: str) -> dict[str, object]:
    kind, _, number = name.partition(" ")
    if kind == "rank":
        return {"name": name, "kind": "rank", "says": f"n1 pid {number}", "rank": int(number)}
    rank = int(number) - 1000 if kind == "process" else None
    says = f"wandb-core, of rank {rank}" if rank is not None else ""
    return {"name": name, "kind": kind if rank is not None else "peer", "says": says, "rank": rank}


def picture(
    links: Sequence[Link], culprit: Sequence[int] = (), waiting: Sequence[int] = ()
) -> Graph:
    names = dict.fromkeys(name for link in links for name in link)
    edges = [
        {"source": a, "target": b, "kind": "rank", "evidence": f"{b} is late"} for a, b in links
    ]
    evidence = {"graph": {"nodes": [node(name) for name in names], "edges": edges}}
    ranks = Ranks(culprit=tuple(culprit), waiting=tuple(waiting))
    verdict = Verdict("hang", "startup", (), 0, 2, None, ranks)
    found = graph_picture(RecordedRun(Path("run"), evidence=evidence), verdict, ShownTexts(plain()))
    assert found is not None
    return found


def names(found: Graph) -> list[str]:
    return [box.name for box in found.boxes]


def test_two_ranks_are_two_boxes_and_the_one_at_fault_is_marked() -> None:
    found = picture([("rank 1", "rank 0")], culprit=[0], waiting=[1])
    assert [(box.name, box.says, box.part) for box in found.boxes] == [
        ("rank 1", "n1 pid 1", "waiting"),
        ("rank 0", "n1 pid 0", "culprit"),
    ]
    assert found.sentences == ("rank 1 waits for rank 0: rank 0 is late",)
    (arrow,) = found.arrows
    assert arrow.number == 1
    assert found.boxes[0].y < arrow.label_y < found.boxes[1].y


def test_a_thousand_ranks_that_wait_for_one_are_one_box() -> None:
    waiting = [r for r in range(1024) if r != 341]
    found = picture([(f"rank {r}", "rank 341") for r in waiting], [341], waiting)
    assert names(found) == ["ranks 0-340,342-1023", "rank 341"]
    assert found.sentences == ("ranks 0-340,342-1023 wait for rank 341: rank 341 is late",)


def test_ranks_that_each_wait_for_a_child_of_their_own_are_two_boxes() -> None:
    found = picture([(f"rank {r}", f"process {1000 + r}") for r in range(8)])
    assert names(found) == ["ranks 0-7", "8 processes"]
    assert found.boxes[1].says == "wandb-core, ... of ranks 0-7"


def test_a_small_ring_stays_whole() -> None:
    found = picture([("rank 0", "rank 1"), ("rank 1", "rank 2"), ("rank 2", "rank 0")])
    assert names(found) == ["rank 0", "rank 1", "rank 2"]
    assert len(found.arrows) == 3


def test_a_large_ring_is_one_box_that_waits_for_itself() -> None:
    found = picture([(f"rank {r}", f"rank {(r + 1) % 64}") for r in range(64)])
    assert names(found) == ["ranks 0-63"]
    assert found.sentences[0].startswith("ranks 0-63 wait for one another")
    assert found.arrows == ()


def test_of_a_graph_that_is_too_large_what_is_near_the_culprit_is_drawn() -> None:
    tangle = [(f"rank {r}", f"rank {(r * r + 5 * r + 1) % 97}") for r in range(97)]
    found = picture([*tangle, *((f"rank {r}", f"rank {r + 1}") for r in range(0, 90, 3))], [10])
    assert len(found.boxes) <= MOST
    assert "rank 10" in names(found)
    assert found.left_out > 0


def test_that_a_rank_is_in_a_collective_as_well_is_no_arrow() -> None:
    chain = (
        Edge("rank 0", "collective barrier", "collective", "barrier"),
        Edge("collective barrier", "rank 0", "rank", "it is in it as well"),
        Edge("collective barrier", "rank 1", "rank", "it is not there"),
    )
    verdict = Verdict("hang", "startup", (), 0, 2, None, Ranks(culprit=(0,)), chain=chain)
    found = graph_picture(RecordedRun(Path("run")), verdict, ShownTexts(plain()))
    assert found is not None
    assert [line.partition(":")[0] for line in found.sentences] == [
        "rank 0 waits for collective barrier",
        "collective barrier waits for rank 1",
    ]


def test_two_that_wait_for_one_another_have_two_arrows_beside_one_another() -> None:
    down, up = picture([("rank 0", "rank 1"), ("rank 1", "rank 0")]).arrows
    assert abs(down.label_x - up.label_x) > 20
    assert down.path != up.path


def test_without_evidence_the_chain_of_the_verdict_is_drawn() -> None:
    chain = (Edge("rank 1", "rank 0", "rank", "it is late"),)
    verdict = Verdict("hang", "startup", (), 0, 2, None, Ranks((0,), (0,), (1,)), chain=chain)
    found = graph_picture(RecordedRun(Path("run")), verdict, ShownTexts(plain()))
    assert found is not None
    assert names(found) == ["rank 1", "rank 0"]


def test_where_nobody_is_known_to_wait_there_is_no_picture() -> None:
    verdict = Verdict("crash", "startup", (), 0, 2, None, Ranks((0,)))
    assert graph_picture(RecordedRun(Path("run")), verdict, ShownTexts(plain())) is None
    odd = RecordedRun(Path("run"), evidence={"graph": {"nodes": "no", "edges": [7, {"source": 3}]}})
    found = graph_picture(odd, verdict, ShownTexts(plain()))
    assert found is None or found.boxes
