"""evidence.json."""

from __future__ import annotations

import json
from dataclasses import fields

from hangbisect.base.json_codec import to_json
from hangbisect.base.rank_facts import MachineFacts, RankFacts
from hangbisect.diagnosis.verdict import judge_job_with_graph
from hangbisect.report.run_reader.run_files import make_evidence, read_evidence

from ..diagnosis.made_up import WANDB, held, job, rank, wandb_core


def test_it_has_every_rank_the_whole_graph_and_the_machine() -> None:
    ranks = [rank(0, WANDB, children=(wandb_core(0),)), held(1)]
    graph = judge_job_with_graph(job(), ranks)[1]
    written = make_evidence(ranks, graph, MachineFacts(cores=2))
    data = json.loads(json.dumps(to_json(written), allow_nan=False))
    assert read_evidence(data) == written
    assert set(data) == {"ranks", "graph", "machine"}
    assert data["machine"]["cores"] == 2
    assert [set(one) for one in data["ranks"]] == [{f.name for f in fields(RankFacts)}] * 2
    names = {node["name"] for node in data["graph"]["nodes"]}
    assert {"rank 0", "rank 1", "process 4899", "127.0.0.1:18080"} <= names
    assert {edge["source"] for edge in data["graph"]["edges"]} <= names
