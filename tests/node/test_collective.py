"""The rank's own arithmetic, and two ranks on this machine: run with the hosts' Python, which has torch."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from needs import needs

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "testbed" / "node" / "collective.py"
HOST_PYTHON = ROOT / ".venv-host" / "bin" / "python"

FACTS = """
import importlib.util, json, sys
spec = importlib.util.spec_from_file_location("collective", sys.argv[1])
collective = importlib.util.module_from_spec(spec)
sys.modules["collective"] = collective
spec.loader.exec_module(collective)
import torch

def order(nodes, stride):
    return [k * stride % nodes for k in range(nodes)]

def inputs(elements, ranks, iteration):
    tensors = [torch.empty(elements) for _ in ranks]
    for rank, tensor in zip(ranks, tensors):
        collective.fill_inputs(tensor, rank, iteration)
    return tensors

def exchange_facts():
    pairs = [[0, 1], [0, 2], [0, 3], [2, 0], [3, 1]]
    job = {"nodes": 4, "backend": "gloo"}
    group = {"make_process_group": lambda *_: None}
    at = lambda rank: type("Node", (), {"rank": rank, "job": job, "device": "cpu", **group})()
    ends = [collective.Exchange(at(rank), "x", pairs) for rank in range(4)]
    parcels = [end.make_buffers(40, 7) for end in ends]  # ten elements
    before = [end.count_wrong_elements(parcel, 7) for end, parcel in zip(ends, parcels)]
    for target, parcel in enumerate(parcels):
        for source, room in parcel.incoming.items():
            room.copy_(parcels[source].outgoing[target])
    moved = [end.count_wrong_elements(parcel, 7) for end, parcel in zip(ends, parcels)]
    parcels[1].incoming[0], parcels[1].incoming[3][:4] = parcels[1].incoming[0].flip(0), parcels[1].incoming[0]
    whole = collective.Exchange(at(0), "x", [[0, 1]]).make_buffers(40, 7).outgoing[1]
    return {
        "sent": [{target: len(part) for target, part in parcel.outgoing.items()} for parcel in parcels],
        "received": [{source: len(part) for source, part in parcel.incoming.items()} for parcel in parcels],
        "parts_are_the_tensor": torch.cat(list(parcels[0].outgoing.values())).equal(whole),
        "wrong": [before, moved, ends[1].count_wrong_elements(parcels[1], 7)],
    }

members = list(range(12))
tensors = inputs(5000, members, 3)
total = torch.stack(tensors).sum(0)
group = inputs(700, [1, 4, 7, 10], 19)
node = type("Node", (), {"rank": 0, "make_process_group": lambda *_: None})()
reduction = collective.RingAllReduce(node, "x", [members])
corrupt = total.clone()
corrupt[[17, 4999]] += 1
def times(before, after):
    # What is used between two moments of a machine whose processors have (busy, stolen, all) ticks.
    early = collective.ProcessorTimes(0.0, 0.0, 10.0, *zip(*before))
    late = collective.ProcessorTimes(0.5, 0.3, 12.0, *zip(*after))
    return vars(collective.compute_processor_use(early, late, "cpu"))

LIMITS = {"min_time_s": 0.5, "min_iterations": 5, "max_iterations": 20, "max_time_s": 8.0}
SEEN = {"iterations": [], "flows": [["10.0.0.2", {"retransmitted": 9000}]]}
NOTHING = {"sent": {}, "seen": SEEN, "wrong": 0}
ENTRIES = [
    {"times": [1.0, 2.0, 9.0], "used": times([(0, 0, 0)] * 2, [(50, 0, 100)] * 2), **NOTHING},
    {"times": [3.0, 1.0, 4.0], "used": times([(0, 0, 0)] * 2, [(90, 10, 100), (30, 0, 100)]), **NOTHING},
]
print(json.dumps({
    "iterations": {s: collective.choose_iterations(LIMITS, s) for s in (0.0, 0.01, 0.06, 0.3, 1.24, 2.5, 60.0)},
    "quartiles": [collective.compute_quartiles(values) for values in ([5.0], [4.0, 1.0], [3.0, 1.0, 2.0, 10.0, 4.0])],
    "figures": collective.make_row(ENTRIES),
    "exchange": exchange_facts(),
    "ranks": {b: {p: [collective.get_ring_rank(order(12, p), i, b) for i in range(12)] for p in (1, 5, 7, 11)}
              for b in ("gloo", "nccl")},
    "sum_is_expected": bool((collective.compute_expected(total, members, 3) == total).all()),
    "group_sum_is_expected": bool((collective.compute_expected(group[0], [1, 4, 7, 10], 19) == sum(group)).all()),
    "inputs_differ": len({tuple(tensor.tolist()) for tensor in tensors}),
    "inputs_differ_by_iteration": bool((inputs(9, [0], 0)[0] != inputs(9, [0], 1)[0]).all()),
    "places_differ": len(set(tensors[0][:251].tolist())),
    "wrong_of_right": reduction.count_wrong_elements(total, 3),
    "wrong_of_corrupt": reduction.count_wrong_elements(corrupt, 3),
    "wrong_without_one": reduction.count_wrong_elements(total - tensors[4], 3),
    "wrong_with_one_twice": reduction.count_wrong_elements(total - tensors[4] + tensors[5], 3),
}))
"""


@pytest.fixture(scope="module")
@needs("process")
def python():
    """Return an interpreter that has torch."""
    for candidate in (HOST_PYTHON, sys.executable):
        if Path(candidate).exists():
            asked = [candidate, "-c", "import importlib.util as u; print(u.find_spec('torch') is not None)"]
            if subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip() == "True":
                return str(candidate)
    pytest.skip("needs torch: `make install` puts it into .venv-host, the simulated hosts' environment")


@pytest.fixture(scope="module")
@needs("process")
def facts(python):
    done = subprocess.run([python, "-c", FACTS, str(PROGRAM)], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.long
def test_iterations_last_for_the_least_time_and_are_never_fewer_than_three(facts):
    assert facts["iterations"] == {
        "0.0": 20,
        "0.01": 20,
        "0.06": 9,
        "0.3": 5,
        "1.24": 5,
        "2.5": 3,
        "60.0": 3,
    }


def test_quartiles_lie_between_the_sorted_values(facts):
    assert facts["quartiles"] == [[5.0, 5.0, 5.0], [1.75, 2.5, 3.25], [2.0, 3.0, 4.0]]


def test_a_row_is_the_slowest_rank_of_the_median_and_what_all_used(facts):
    row = facts["figures"]
    assert (row["low_us"], row["time_us"], row["high_us"]) == (2.0e6, 3.0e6, 3.5e6)
    assert (row["min_us"], row["max_us"], row["iterations"]) == (2.0e6, 9.0e6, 3)
    assert row["processor_s"] == pytest.approx(2 * 0.5 / 3)
    assert (row["processor_busy"], row["processor_busiest"]) == pytest.approx((0.6, 0.9))
    assert (row["processor_stolen"], row["processor_waited"]) == pytest.approx((0.05, 0.15))


@pytest.mark.parametrize("stride", [1, 5, 7, 11])
def test_the_rank_on_a_ring_is_the_node_times_the_inverse_of_the_stride(facts, stride):
    inverse = pow(stride, -1, 12)
    assert facts["ranks"]["nccl"][str(stride)] == [node * inverse % 12 for node in range(12)]


@pytest.mark.parametrize("stride", [1, 5, 7, 11])
def test_gloo_passes_data_to_the_rank_below_and_still_along_the_stride(facts, stride):
    node_at = {rank: node for node, rank in enumerate(facts["ranks"]["gloo"][str(stride)])}
    hops = {(node_at[(rank - 1) % 12] - node) % 12 for rank, node in node_at.items()}
    assert hops == {stride}


def test_a_row_holds_what_each_rank_saw_and_what_tcp_sent_again_by_peer(facts):
    row = facts["figures"]
    assert row["retransmitted_bytes"] == [[["10.0.0.2", 9000]]] * 2
    assert [seen["flows"][0][0] for seen in row["seen"]] == ["10.0.0.2"] * 2


def test_inputs_differ_by_rank_by_iteration_and_by_place(facts):
    assert (facts["inputs_differ"], facts["inputs_differ_by_iteration"], facts["places_differ"]) == (
        12,
        True,
        251,
    )


def test_the_expected_sum_is_the_exact_sum_of_the_inputs(facts):
    assert facts["sum_is_expected"]
    assert facts["group_sum_is_expected"]


def test_wrong_elements_are_counted(facts):
    assert (facts["wrong_of_right"], facts["wrong_of_corrupt"]) == (0, 2)


def test_a_rank_left_out_or_taken_twice_makes_every_element_wrong(facts):
    assert (facts["wrong_without_one"] > 4900, facts["wrong_with_one_twice"]) == (True, 5000)


def test_a_tensor_is_split_evenly_over_the_targets(facts):
    exchange = facts["exchange"]
    assert exchange["sent"] == [{"1": 4, "2": 3, "3": 3}, {}, {"0": 10}, {"1": 10}]
    assert exchange["received"] == [{"2": 10}, {"0": 4, "3": 10}, {"0": 3}, {"0": 3}]
    assert exchange["parts_are_the_tensor"]


def test_received_elements_are_wrong_until_they_are_what_their_sender_had_there(facts):
    assert facts["exchange"]["wrong"] == [[10, 14, 3, 3], [0, 0, 0, 0], 8]


# --------------------------------------------------------------------------------------- on this machine
class TwoRanks:
    """Two ranks on loopback, whose one 'NIC' is `lo`."""

    def __init__(self, python, stack):
        command = [python, "-I", str(PROGRAM)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.ranks = [subprocess.Popen([*command, str(rank)], **pipes) for rank in range(2)]
        for rank in self.ranks:
            stack.enter_context(rank)
            stack.callback(rank.kill)
        self.ready = [json.loads(rank.stdout.readline()) for rank in self.ranks]

    def send(self, **job):
        port = self.ready[0]["store_port"]
        whole = {
            "nodes": 2,
            "backend": "gloo",
            "store": f"127.0.0.1:{port}",
            "addresses": ["127.0.0.1", "127.0.0.1"],
            "nics": [["lo"], ["lo"]],
            "timeout_s": 20,
            "min_time_s": 0.05,
            "min_iterations": 2,
            "max_iterations": 20,
            "max_time_s": 8.0,
        } | job
        for rank in self.ranks:
            rank.stdin.write(json.dumps(whole) + "\n")
            rank.stdin.flush()

    def messages(self):
        return [
            [json.loads(line) for line in rank.communicate(timeout=60)[0].splitlines()] for rank in self.ranks
        ]


@pytest.fixture
@needs("process")
def two_ranks(python):
    with ExitStack() as stack:
        yield TwoRanks(python, stack)


@pytest.mark.long
def test_two_ranks_measure_all_sizes_of_all_configurations(two_ranks):
    configurations = [
        {"name": "one", "sizes": [4, 1024, 1 << 20], "rings": [[0, 1]]},
        {"name": "two", "sizes": [4, 1 << 20], "rings": [[0, 1], [1, 0]]},
    ]
    two_ranks.send(configurations=configurations)
    first, second = two_ranks.messages()
    assert [message["event"] for message in second] == ["at"] * 5 + ["done"]
    rows = [message for message in first if message["event"] == "row"]
    expected = [("one", 4), ("one", 1024), ("one", 1 << 20), ("two", 4), ("two", 1 << 20)]
    assert [(row["configuration"], row["size"]) for row in rows] == expected
    assert first[-1]["event"] == "done"
    for row in rows:
        assert row["wrong"] == [0, 0]
        assert 2 <= row["iterations"] <= 20
        assert 0 < row["min_us"] <= row["max_us"]
        assert row["min_us"] * 0.99 <= row["time_us"] <= row["max_us"] * 1.01
        assert 0 <= row["processor_busy"] <= 1
        # lo counts what both ranks send: 2(n-1)/n of the size each, and more if others use it.
        assert row["sent_bytes"][0]["lo"] >= 2 * row["size"] * row["iterations"]
    assert [rank.returncode for rank in two_ranks.ranks] == [0, 0]


def test_two_ranks_exchange(two_ranks):
    pairs = {"both ways": [[0, 1], [1, 0]], "one way": [[1, 0]]}
    two_ranks.send(
        configurations=[{"name": name, "sizes": [4, 1 << 20], "pairs": pairs[name]} for name in pairs]
    )
    first, second = two_ranks.messages()
    assert [message["event"] for message in second] == ["at"] * 4 + ["done"]
    rows = [message for message in first if message["event"] == "row"]
    assert [(row["configuration"], row["wrong"]) for row in rows] == [
        (name, [0, 0]) for name in pairs for _ in range(2)
    ]
    for row in rows:
        sent = len(pairs[row["configuration"]]) * row["size"] * row["iterations"]
        assert row["sent_bytes"][0]["lo"] >= sent


@pytest.mark.long
@pytest.mark.socket
def test_ready_says_what_runs_and_where_the_store_is(two_ranks):
    first, second = two_ranks.ready
    assert (first["rank"], second["rank"], second["store_port"]) == (0, 1, None)
    with socket.create_connection(("127.0.0.1", first["store_port"]), timeout=5):
        pass
    assert set(first["versions"]) == {"torch", "host_python", "host_system"}
    assert first["gpus"] >= 0
    assert two_ranks.messages() == [[], []], "without a job nobody runs"
    assert [rank.returncode for rank in two_ranks.ranks] == [1, 1]


@pytest.mark.long
def test_a_rank_whose_peer_dies_says_so(two_ranks):
    sizes = [1024, *[1 << 24] * 50]
    two_ranks.send(configurations=[{"name": "long", "sizes": sizes, "rings": [[0, 1]]}], timeout_s=3)
    for line in two_ranks.ranks[0].stdout:
        if json.loads(line)["event"] == "row":
            break
    os.kill(two_ranks.ranks[1].pid, 9)
    messages = [json.loads(line) for line in two_ranks.ranks[0].stdout]
    assert messages[-1]["event"] == "error"
    assert messages[-1]["message"]
