"""The packet server on real sockets: outcomes, answers, and both ways to them, in Python and in machine code."""

import contextlib
import os
import random
import socket
import subprocess
import sys
import threading
from collections import Counter, deque
from itertools import count
from pathlib import Path
from time import monotonic, time_ns

import numpy as np
import pytest

from lightning.compiler import Options, compile_network
from lightning.errors import ServingError
from lightning.execution.factory import open_executor
from lightning.execution.noise import Noise
from lightning.networks.network import Network, Node, Preprocessing
from lightning.serving import Repository
from lightning.serving.packets import server as datagrams
from lightning.serving.packets.codec import (
    HEADER,
    MAX_PAYLOAD_BYTES,
    Datatype,
    Kind,
    Packet,
    RefusalCode,
    decode_answer,
    parse,
    serialise,
    split,
)
from lightning.serving.packets.counts import LATE
from lightning.serving.packets.deferred import MAX_PENDING
from lightning.serving.packets.mmsg import Inbox
from lightning.serving.packets.reassembly import FragmentReassembler, ReplayCache
from lightning.serving.packets.server import DatagramServer
from lightning.serving.packets.services import PacketService

pytestmark = pytest.mark.socket

TERMS = 20


class Client:
    """A socket that talks to a server."""

    def __init__(self, server):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.connect(server.address)
        self.socket.settimeout(20)

    def send(self, *datagrams):
        for each in datagrams:
            self.socket.send(each)

    def receive(self):
        return parse(self.socket.recv(4096))

    def ask(self, *datagrams):
        self.send(*datagrams)
        return self.receive()


@pytest.fixture
def client():
    made = []

    def make(server):
        made.append(Client(server))
        return made[-1]

    yield make
    for each in made:
        each.socket.close()


def request(number, payload=bytes(TERMS), **fields):
    return serialise(Packet(Kind.REQUEST, fields.pop("model", 1), number, payload, **fields))


def image(number):
    return np.random.default_rng(number).integers(0, 256, TERMS).astype(np.uint8).tobytes()


@pytest.fixture
def doubles(opened, model):
    repository = Repository(opened)
    repository.load("small", model)
    yield repository
    repository.close()


@pytest.fixture(params=["python", "fast_path"])
def fast_path(request):
    if request.param == "fast_path":
        pytest.importorskip("numba", reason="machine code is made by numba")
    return request.param == "fast_path"


@pytest.fixture
def exact(model):
    repository = Repository(lambda each: open_executor(each, "exact"))
    repository.load("small", model)
    yield repository
    repository.close()


@pytest.fixture
def noisy(model):
    pytest.importorskip("numba", reason="noise is made by numba")
    repository = Repository(lambda each: open_executor(each, "noisy", noise=Noise(sigma=4), seed=5))
    repository.load("small", model)
    yield repository
    repository.close()


# ------------------------------------------------------------------------------------ answers


def test_an_answer_has_class_scores_and_cycles(doubles, client):
    with DatagramServer(doubles) as server:
        answer = client(server).ask(request(9, bytes([3]) + bytes(TERMS - 1)))
    assert (answer.kind, answer.model, answer.request) == (Kind.ANSWER, 1, 9)
    found = decode_answer(answer.payload)
    assert found.scores.tolist() == [9.0, 3.0]  # the double answers with the key and the first number
    assert (found.class_index, found.cycles) == (0, 7)
    assert server.counts().answered == server.counts().received == 1


@pytest.mark.long
def test_answers_are_those_of_the_executor_with_the_request_as_key(noisy, client, fast_path):
    keys = [0, 1, 2**63 + 5, 2**64 - 1]
    with noisy.acquire("small") as instance:
        inputs = np.array([np.frombuffer(image(7), np.uint8)] * len(keys))
        expected = instance.run(inputs, np.array(keys, np.uint64))
    with DatagramServer(noisy, is_fast_path_enabled=fast_path) as server:
        asked = client(server)
        answers = [decode_answer(asked.ask(request(key, image(7))).payload) for key in keys]
    assert [each.scores.tolist() for each in answers] == expected.scores.tolist()
    assert [each.class_index for each in answers] == expected.classes.tolist()
    assert {each.cycles for each in answers} == {expected.cycles}
    assert len({tuple(each.scores) for each in answers}) > 1  # there was noise


@pytest.mark.translates
def test_the_class_of_a_single_score_is_whether_it_is_above_0(client, fast_path):
    weights = np.float32([np.arange(TERMS) - (TERMS - 1) / 2])
    fc = Node("fc", "Gemm", ("image", "w"), "score")
    shapes = {"image": (TERMS,), "score": (1,)}
    network = Network("one", (fc,), {"w": weights}, "image", "score", shapes, Preprocessing(scale=1 / 255))
    one = compile_network(network, None, Options(scheme="published"))
    repository = Repository(lambda each: open_executor(each, "exact"))
    repository.load("one", one)
    inputs = [image(number) for number in range(20)]
    with DatagramServer(repository, is_fast_path_enabled=fast_path) as server:
        asked = client(server)
        found = [decode_answer(asked.ask(request(number, raw)).payload) for number, raw in enumerate(inputs)]
    repository.close()
    assert {each.class_index for each in found} == {0, 1}
    assert [each.class_index for each in found] == [int(each.scores[0] > 0) for each in found]


def test_machine_code_and_python_write_the_same_datagram(noisy, client):
    datagrams = []
    for fast_path in (False, True):
        with DatagramServer(noisy, is_fast_path_enabled=fast_path) as server:
            asked = client(server)
            asked.send(*(request(key, image(key), time_us=10_000_000) for key in range(40)))
            got = sorted((asked.receive() for _ in range(40)), key=lambda each: each.request)
            datagrams.append([(each.request, each.model, each.datatype, each.payload) for each in got])
        assert (
            server.counts().answered == 40
        )  # counted after the answers are sent, at the latest when it has ended
    assert datagrams[0] == datagrams[1]


def test_floats_are_taken_too(exact, client, fast_path):
    numbers = np.frombuffer(image(1), np.uint8).astype(">f4").tobytes()
    with DatagramServer(exact, is_fast_path_enabled=fast_path) as server:
        asked = client(server)
        as_floats = asked.ask(request(4, numbers, datatype=Datatype.FLOAT32))
        as_bytes = asked.ask(request(4, image(1)))
    assert as_floats.payload == as_bytes.payload


def test_many_at_a_time_are_all_answered(exact, client, fast_path):
    with DatagramServer(exact, is_fast_path_enabled=fast_path) as server:
        asked = client(server)
        asked.send(*(request(key) for key in range(200)))
        assert {asked.receive().request for _ in range(200)} == set(range(200))
    assert server.counts().answered == server.counts().received == 200


# ----------------------------------------------------------------------------------- outcomes


@pytest.mark.parametrize(
    ("datagram", "code", "outcome"),
    [
        (request(3, model=2), RefusalCode.UNKNOWN_MODEL, "unknown_model"),
        (request(3, time_us=1), RefusalCode.LATE, "late"),
        (request(3, bytes(TERMS + 1)), RefusalCode.INPUT, "refused"),
        (request(3, bytes(4), datatype=Datatype.FLOAT32), RefusalCode.INPUT, "refused"),
        (request(3, b"\x7f\xc0\0\0" * TERMS, datatype=Datatype.FLOAT32), RefusalCode.INPUT, "refused"),
        (request(3)[:-1], RefusalCode.MALFORMED, "malformed"),
        (request(3) + bytes(3000), RefusalCode.MALFORMED, "malformed"),
        (request(3)[:30] + b"\1" + request(3)[31:], RefusalCode.MALFORMED, "malformed"),
    ],
)
def test_refusals(exact, client, fast_path, datagram, code, outcome):
    with DatagramServer(exact, is_fast_path_enabled=fast_path) as server:
        refusal = client(server).ask(datagram)
    assert (refusal.kind, refusal.code, refusal.request, refusal.payload) == (
        Kind.REFUSAL,
        code,
        3,
        b"",
    )
    assert {name: number for name, number in server.counts().count_by_outcome().items() if number} == {
        outcome: 1
    }
    assert server.counts().is_balanced


@pytest.mark.parametrize(
    "datagram",
    [
        b"",
        b"x",
        request(1)[: HEADER.size - 1],
        b"NOPE" + request(1)[4:],
        serialise(Packet(Kind.ANSWER, 1, 1)),
        serialise(Packet(Kind.REFUSAL, 1, 1, code=1)),
    ],
)
def test_what_is_no_request_gets_no_answer(doubles, client, datagram):
    with DatagramServer(doubles) as server:
        assert client(server).ask(datagram, request(8)).request == 8  # the first thing that comes back
    assert (server.counts().malformed, server.counts().answered) == (1, 1)


@pytest.mark.parametrize("from_the_start", [True, False])
def test_a_model_that_fails_is_reported_and_logged(doubles, opened, client, caplog, from_the_start):
    if from_the_start:
        opened[0].run = None
    with DatagramServer(doubles) as server:
        opened[0].run = None
        refusal = client(server).ask(request(3))
    assert refusal.code == RefusalCode.FAILED
    assert "request 3" in caplog.text
    assert (server.counts().failed, server.counts().is_balanced) == (1, True)


def test_repetitions_are_answered_again_with_the_same_scores(noisy, client, fast_path):
    with DatagramServer(noisy, is_fast_path_enabled=fast_path) as server:
        asked, other = client(server), client(server)
        first, again = asked.ask(request(5)), asked.ask(request(5))
        elsewhere = other.ask(request(5))
    assert first.payload == again.payload == elsewhere.payload
    assert (server.counts().answered, server.counts().replayed) == (2, 1)


def test_time_in_the_queue_counts_for_the_deadline(doubles, opened, client):
    with DatagramServer(doubles) as server:
        asked = client(server)
        asked.ask(request(1))
        opened[0].gate.clear()
        opened[0].started.clear()
        asked.send(request(2))
        assert opened[0].started.wait(60)
        asked.send(request(3, time_us=3000), request(4, time_us=3_600_000_000))
        threading.Event().wait(0.005)
        runs = len(opened[0].warmed)
        opened[0].gate.set()
        found = {each.request: (each.kind, each.time_us) for each in (asked.receive() for _ in range(3))}
    assert [found[number][0] for number in (2, 3, 4)] == [
        Kind.ANSWER,
        Kind.REFUSAL,
        Kind.ANSWER,
    ]
    assert min(time for _, time in found.values()) >= 3000
    assert len(opened[0].warmed) == runs + 1  # the late one was not begun


def test_a_deadline_that_passes_while_the_model_runs_is_missed(doubles, opened, client, clock, monkeypatch):
    monkeypatch.setattr("lightning.serving.packets.packet_loop.wall_clock_ns", clock.time_ns)
    with DatagramServer(doubles) as server:
        asked = client(server)
        asked.ask(request(1))
        opened[0].gate.clear()
        opened[0].started.clear()
        asked.send(request(2, time_us=3_600_000_000))
        assert opened[0].started.wait(60)
        clock.ahead_s = 7200
        opened[0].gate.set()
        assert asked.receive().code == RefusalCode.LATE


@pytest.mark.long
def test_machine_code_sees_a_deadline_that_passes_while_it_runs(client):
    pytest.importorskip("numba", reason="machine code is made by numba")
    weights = np.random.default_rng(3).normal(size=(4000, MAX_PAYLOAD_BYTES)).astype(np.float32)
    constants = {"w1": weights, "w2": weights[:3, :1].repeat(4000, axis=1)}
    nodes = (
        Node("fc1", "Gemm", ("image", "w1"), "sums"),
        Node("relu", "Relu", ("sums",), "hidden"),
        Node("fc2", "Gemm", ("hidden", "w2"), "scores"),
    )
    shapes = {"image": (MAX_PAYLOAD_BYTES,), "sums": (4000,), "hidden": (4000,), "scores": (3,)}
    network = Network("big", nodes, constants, "image", "scores", shapes, Preprocessing(scale=1 / 255))
    repository = Repository(lambda each: open_executor(each, "exact"))
    instance = repository.load("big", compile_network(network, None, Options(scheme="published")))
    fast_path = PacketService(instance).fast_path
    outcomes = np.zeros(1, np.int8)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.bind(("127.0.0.1", 0))
        inbox = Inbox(own, 1)
        fast_path.answer_requests(inbox, 0, ReplayCache(), outcomes)
        for number in range(5):
            own.sendto(
                request(number, b"\xff" * MAX_PAYLOAD_BYTES, time_us=40),
                own.getsockname(),
            )
            while not inbox.receive():
                pass
            inbox.arrival_times[0] = divmod(time_ns(), 1_000_000_000)  # as if it came just now
            fast_path.answer_requests(inbox, 1, ReplayCache(), outcomes)
            assert outcomes.tolist() == [LATE]
            while not inbox.receive():  # what it was sent
                pass
    repository.close()


# ------------------------------------------------------------------------------- models that take long


@pytest.fixture
def two(doubles, opened, other_model):
    """Model 1, which somebody has for now, and model 2."""
    doubles.load("other", other_model)
    instance = doubles.list_serving()[0]
    instance.lock.acquire()
    yield doubles, instance
    if instance.lock._owner_lock.locked():
        instance.lock.release()


def test_others_are_answered_while_a_model_is_taken(two, client):
    repository, taken = two
    with DatagramServer(repository) as server:
        asked = client(server)
        asked.send(request(1))
        assert asked.ask(request(2, model=2)).request == 2
        assert server.counts().is_balanced
        assert server.counts().waiting == 1
        taken.lock.release()
        answer = asked.receive()
        again = asked.ask(request(1))
    assert (answer.kind, answer.request, answer.model) == (Kind.ANSWER, 1, 1)
    assert again.payload == answer.payload
    counts = server.counts()
    assert (counts.answered, counts.replayed, counts.waiting, counts.is_balanced) == (2, 1, 0, True)


def test_a_deadline_holds_though_the_model_is_taken(two, client):
    repository, taken = two
    with DatagramServer(repository) as server:
        asked = client(server)
        asked.send(request(0), *(request(number, time_us=2000) for number in (1, 2, 3)))
        late = [asked.receive() for _ in range(3)]
        taken.lock.release()
        assert asked.receive().request == 0
    assert {(each.request, each.code) for each in late} == {
        (number, RefusalCode.LATE) for number in (1, 2, 3)
    }
    assert (server.counts().late, server.counts().answered, server.counts().is_balanced) == (3, 1, True)


def test_not_too_many_wait_for_a_model(two, client):
    repository, taken = two
    with DatagramServer(repository) as server:
        asked = client(server)
        busy = asked.ask(*(request(number) for number in range(MAX_PENDING + 1)))
        taken.lock.release()
        assert {asked.receive().request for _ in range(MAX_PENDING)} == set(range(MAX_PENDING))
    assert (busy.request, busy.code) == (MAX_PENDING, RefusalCode.BUSY)
    assert (server.counts().busy, server.counts().answered, server.counts().is_balanced) == (
        1,
        MAX_PENDING,
        True,
    )


def test_a_model_on_a_device_is_answered_in_its_own_thread(double, model, client):
    threads = set()

    class OnDevice(double):
        fidelity = "device"

        def run(self, inputs, keys=None):
            threads.add(threading.current_thread().name)
            return super().run(inputs, keys)

    repository = Repository(OnDevice)
    repository.load("small", model)
    with DatagramServer(repository) as server:
        asked = client(server)
        assert decode_answer(asked.ask(request(9)).payload).scores[0] == 9
        assert asked.ask(request(3, bytes(3))).code == RefusalCode.INPUT
        repository.unload("small")
        assert asked.ask(request(4)).code == RefusalCode.UNKNOWN_MODEL
    assert {each.partition("_")[0] for each in threads} == {"packets-1"}
    assert server.counts().is_balanced


def test_overruns_of_the_socket_are_counted(doubles, opened, client):
    with DatagramServer(doubles, buffer_bytes=1) as server:
        asked = client(server)
        asked.ask(request(0))
        opened[0].gate.clear()
        opened[0].started.clear()
        asked.send(request(1))
        assert opened[0].started.wait(60)
        asked.send(*(request(number) for number in range(2, 100)))
        opened[0].gate.set()
        asked.receive()
        number = next(number for number in count(100) if _overrun(asked, server, number))
    counts = server.counts()
    assert counts.overrun > 50
    assert counts.received + counts.overrun == number + 1
    assert counts.is_balanced


def _overrun(asked, server, number):
    """Ask once more: the kernel tells of losses with the next datagram."""
    asked.send(request(number))
    while asked.receive().request != number:
        pass
    return server.counts().overrun > 0


# ---------------------------------------------------------------------------------- fragments


@pytest.fixture(scope="session")
def wide(tmp_path_factory):
    """Return a model with more numbers, and more scores, than a datagram holds."""
    from lightning.compiler import Options, compile_network
    from lightning.networks import load_network

    file = tmp_path_factory.mktemp("wide") / "wide.npz"
    np.savez(file, w1=np.random.default_rng(0).normal(size=(400, 3000)).astype(np.float32))
    return compile_network(load_network(file), None, Options(scheme="published"))


def test_inputs_and_answers_that_do_not_fit_come_in_fragments(wide, client, fast_path):
    repository = Repository(lambda each: open_executor(each, "exact"))
    repository.load("wide", wide)
    numbers = np.random.default_rng(1).integers(0, 256, 3000).astype(np.uint8)
    with DatagramServer(repository, is_fast_path_enabled=fast_path) as server:
        asked = client(server)
        parts = [serialise(each) for each in split(Kind.REQUEST, 1, 6, numbers.tobytes())]
        asked.send(parts[2], parts[0], parts[0], parts[1])
        answers = sorted((asked.receive() for _ in range(2)), key=lambda each: each.fragment)
    found = decode_answer(b"".join(each.payload for each in answers))
    with repository.acquire("wide") as instance:
        expected = instance.run(numbers[None], np.array([6], np.uint64))
    assert found.scores.tolist() == expected.scores[0].tolist()
    counts = server.counts()
    assert (counts.received, counts.answered, counts.joined, counts.replayed) == (4, 1, 2, 1)
    repository.close()


def test_a_fragmented_request_has_its_deadline_from_its_first_fragment(wide, client):
    repository = Repository(lambda each: open_executor(each, "exact"))
    repository.load("wide", wide)
    with DatagramServer(repository) as server:
        asked = client(server)
        first, *others = (serialise(each) for each in split(Kind.REQUEST, 1, 5, bytes(3000), time_us=10_000))
        asked.send(first)
        threading.Event().wait(0.02)
        assert asked.ask(*others).code == RefusalCode.LATE
    repository.close()


def test_fragments_without_their_others_are_given_up(doubles, client):
    with DatagramServer(doubles, reassembly=FragmentReassembler(time_limit_ns=0)) as server:
        asked = client(server)
        asked.send(request(1, bytes(MAX_PAYLOAD_BYTES), fragments=2))
        while server.counts().dropped == 0:  # the thread looks when it is idle
            asked.ask(request(2))
    counts = server.counts()
    assert (counts.dropped, counts.waiting, counts.is_balanced) == (1, 0, True)


# -------------------------------------------------------------------------------- life of a server


def test_models_are_swapped_under_load_without_a_loss(model, other_model, client, fast_path):
    repository = Repository(lambda each: open_executor(each, "exact"))
    repository.load("small", model)
    expected = {
        tuple(open_executor(each, "exact").run(np.frombuffer(image(1), np.uint8)[None]).scores[0].tolist())
        for each in (model, other_model)
    }
    with DatagramServer(repository, is_fast_path_enabled=fast_path) as server:
        asked = client(server)
        found = Counter()
        for number in range(200):
            found[tuple(decode_answer(asked.ask(request(number, image(1))).payload).scores.tolist())] += 1
            if number in (50, 100, 150):
                repository.load("small", other_model if number != 100 else model)
        repository.unload("small")
        assert asked.ask(request(200)).code == RefusalCode.UNKNOWN_MODEL
    assert set(found) == expected
    assert min(found.values()) >= 90
    assert (server.counts().answered, server.counts().unknown_model) == (200, 1)
    assert repository.list_serving() == ()


def test_a_model_that_is_loaded_later_is_served(doubles, other_model, client):
    with DatagramServer(doubles) as server:
        instance = doubles.load("later", other_model)
        assert client(server).ask(request(1, model=instance.number)).model == instance.number == 2


def test_a_port_that_is_taken_is_named(doubles):
    with DatagramServer(doubles) as server, pytest.raises(ServingError) as raised:
        DatagramServer(doubles, *server.address)
    assert str(server.address[1]) in str(raised.value)


# ------------------------------------------------------------------------------------ real time


def real_time_is_permitted():
    code = "import os; os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))"
    return (
        subprocess.run([sys.executable, "-c", code], stderr=subprocess.DEVNULL, check=False).returncode == 0
    )


@pytest.mark.process
def test_real_time_is_for_the_thread_of_the_packets(doubles, client):
    if not real_time_is_permitted():
        pytest.skip("real time needs CAP_SYS_NICE")
    before = os.sched_getscheduler(0)
    with DatagramServer(doubles, realtime=True) as server:
        found = os.sched_getscheduler(server._thread.native_id)
        assert found & ~os.SCHED_RESET_ON_FORK == os.SCHED_FIFO
        assert client(server).ask(request(1)).kind == Kind.ANSWER
    assert os.sched_getscheduler(0) == before


@pytest.mark.process
def test_real_time_is_not_for_models_that_take_long(double, model, client):
    if not real_time_is_permitted():
        pytest.skip("real time needs CAP_SYS_NICE")
    policies = []

    class OnDevice(double):
        fidelity = "device"

        def run(self, inputs, keys=None):
            policies.append(os.sched_getscheduler(0))
            return super().run(inputs, keys)

    repository = Repository(OnDevice)
    repository.load("small", model)
    with DatagramServer(repository, realtime=True) as server:
        client(server).ask(request(9))
    assert set(policies) == {os.SCHED_OTHER}


def test_real_time_is_asked_of_the_system_once_and_by_the_thread_itself(doubles, client, monkeypatch):
    asked = []
    monkeypatch.setattr(
        os, "sched_setscheduler", lambda *words: asked.append((threading.current_thread().name, *words))
    )
    with DatagramServer(doubles, realtime=True) as server:
        client(server).ask(request(1))
    ((thread, process, policy, parameters),) = asked
    assert (thread, process, parameters.sched_priority) == ("inference-packets", 0, 1)
    assert policy == os.SCHED_FIFO | os.SCHED_RESET_ON_FORK


def test_real_time_that_is_not_permitted_is_reported_and_nothing_stays_open(doubles, monkeypatch):
    def refuse(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    server = DatagramServer(doubles, realtime=True)
    with pytest.raises(ServingError, match="real time") as raised:
        server.start()
    assert "CAP_SYS_NICE" in raised.value.hint
    assert not server._thread.is_alive()
    DatagramServer(doubles, *server.address).close()  # the port is free


# -------------------------------------------------------------------------------------- its end


def test_at_its_end_it_answers_what_has_come(doubles, opened, client):
    server = DatagramServer(doubles)
    server.start()
    asked = client(server)
    opened[0].gate.clear()
    opened[0].started.clear()
    asked.send(*(request(number) for number in range(50)))
    assert opened[0].started.wait(60)
    closing = threading.Thread(target=server.close)
    closing.start()
    opened[0].gate.set()
    closing.join(60)
    assert {asked.receive().request for _ in range(50)} == set(range(50))
    assert server.counts().answered == 50


def test_its_end_does_not_wait_for_a_flood_to_cease(doubles, client, monkeypatch):
    monkeypatch.setattr(datagrams, "SHUTDOWN_S", 0.02)
    server = DatagramServer(doubles)
    server.start()
    asked, over = client(server), threading.Event()

    def flood():
        while not over.is_set():
            with contextlib.suppress(OSError):  # the port is closed in the end
                asked.send(request(1))

    flooding = threading.Thread(target=flood)
    flooding.start()
    asked.receive()
    ending = threading.Thread(target=server.close)
    ending.start()
    ending.join(60)
    assert not ending.is_alive()
    over.set()
    flooding.join()


# ------------------------------------------------------------------------------- mixed traffic


class Traffic:
    """Good, malformed, truncated, replayed, fragmented and unknown packets, and how many of each were sent."""

    def __init__(self, seed):
        self.chance = random.Random(seed)
        self.sent = Counter()
        self.numbers = count()
        self.lately = deque(maxlen=500)

    def next_key(self):
        kinds = ("good", "malformed", "truncated", "replayed", "part", "unknown")
        (kind,) = self.chance.choices(kinds, (50, 15, 10, 15, 5, 5))
        datagrams = getattr(self, kind)()
        self.sent[kind] += len(datagrams)
        return datagrams

    def good(self):
        self.lately.append(request(next(self.numbers), self.chance.randbytes(TERMS)))
        return [self.lately[-1]]

    def malformed(self):
        damaged = bytearray(self.good()[0])
        damaged[self.chance.choice([0, 1, 2, 3, 4, 6, 7, 28, 30])] ^= 0x55
        self.lately.pop()
        return [self.chance.choice([bytes(damaged), self.chance.randbytes(self.chance.randrange(1400))])]

    def truncated(self):
        return [self.lately[-1][: self.chance.randrange(HEADER.size + TERMS)]]

    def replayed(self):
        return [self.chance.choice(self.lately)]

    def part(self):
        number = next(self.numbers)
        whole = [serialise(each) for each in split(Kind.REQUEST, 1, number, bytes(2 * MAX_PAYLOAD_BYTES))]
        return whole[: self.chance.randint(1, 2)]

    def unknown(self):
        return [request(next(self.numbers), model=99)]

    def drive(self, server, asked, going_on):
        """Send as long as it goes on, with a request between that must be answered, so that nothing is overrun."""
        asked.send(*self.good())
        self.sent["good"] += 1
        while going_on():
            for _ in range(20):
                asked.send(*self.next_key())
            marker = 1 << 40 | next(self.numbers)
            asked.send(request(marker))
            self.sent["good"] += 1
            while asked.receive().request != marker:
                pass

    def check(self, counts):
        assert counts.is_balanced
        assert counts.received == sum(self.sent.values())
        assert counts.overrun == 0
        assert counts.malformed == self.sent["malformed"] + self.sent["truncated"]
        assert counts.unknown_model == self.sent["unknown"]
        assert counts.answered + counts.replayed == self.sent["good"] + self.sent["replayed"]
        assert counts.replayed <= self.sent["replayed"]
        assert counts.replayed >= 0.95 * self.sent["replayed"]  # the table forgets some
        assert counts.waiting + counts.dropped + counts.joined + counts.refused == self.sent["part"]
        assert min(self.sent.values()) > 20


@pytest.mark.long
def test_mixed_packets_add_up(exact, client, fast_path):
    traffic = Traffic(seed=2)
    with DatagramServer(exact, is_fast_path_enabled=fast_path) as server:
        traffic.drive(server, client(server), lambda: sum(traffic.sent.values()) < 6000)
    traffic.check(server.counts())


@pytest.mark.long
@pytest.mark.timeout(900)
def test_ten_minutes_of_mixed_packets_add_up_and_leak_nothing(noisy, client):
    traffic = Traffic(seed=3)
    begin = monotonic()
    with DatagramServer(noisy) as server:
        asked = client(server)
        traffic.drive(server, asked, lambda: monotonic() < begin + 60)
        before = resident_bytes()
        traffic.drive(server, asked, lambda: monotonic() < begin + 600)
        grown = resident_bytes() / before - 1
    assert traffic.sent["good"] > 100_000
    traffic.check(server.counts())
    assert grown < 0.05


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
