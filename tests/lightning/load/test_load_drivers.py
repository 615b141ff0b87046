"""Loads on servers that the test shapes: echoes, servers that stall, break, refuse or say nothing."""

import contextlib
import json
import socket
import threading

import numpy as np
import pytest

from lightning.load import drive_datagrams, drive_http
from lightning.load.datagrams import exchange
from lightning.load.echo import HTTP_ANSWER, echo_datagrams, echo_http
from lightning.load.http import BROKEN_STATUS, ECHO_INPUT, find_only_model, send_on_time
from lightning.load.http_messages import find_message_length
from lightning.load.outcome import NOT_HAPPENED
from lightning.load.schedule import draw_schedule
from lightning.load.targets import LoadError, Target
from lightning.serving.packets.codec import Datatype, Kind, Packet, RefusalCode, parse, serialise
from lightning.serving.packets.mmsg import RECEIVE_BUFFER_BYTES

pytestmark = pytest.mark.socket

DUE = draw_schedule(2000, 0.1, seed=3)


@contextlib.contextmanager
def echoing(scheme):
    """Yield an echo in a thread, told to stop by a byte."""
    ours, theirs = socket.socketpair()
    kind, echo = (socket.SOCK_DGRAM, echo_datagrams) if scheme == "udp" else (socket.SOCK_STREAM, echo_http)
    with socket.socket(socket.AF_INET, kind) as server, ours, theirs:
        server.bind(("127.0.0.1", 0))
        if scheme == "http":
            server.listen(64)
        else:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        thread = threading.Thread(target=echo, args=(server, theirs.fileno()))
        thread.start()
        yield Target(scheme, *server.getsockname())
        ours.send(b"x")
        thread.join()


@contextlib.contextmanager
def web_server(serve):
    """Yield a server in whose thread `serve(client, number)` answers each connection."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        clients = []

        def accept():
            with contextlib.suppress(OSError):
                while True:
                    client, _ = listening.accept()
                    clients.append(client)
                    threading.Thread(target=quietly, args=(client, len(clients) - 1)).start()

        def quietly(client, number):
            with contextlib.suppress(OSError), client:
                serve(client, number)

        thread = threading.Thread(target=accept)
        thread.start()
        yield listening.getsockname()[:2]
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()
        for each in clients:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


def requests_on(client):
    received = b""
    while came := client.recv(1 << 16):
        received += came
        while length := find_message_length(received):
            yield received[:length]
            received = received[length:]


# ------------------------------------------------------------------------------------------ http


def test_every_request_is_answered_and_sent_when_due():
    with echoing("http") as target:
        found = drive_http(target, "m", 2000, 0.1, model_input=ECHO_INPUT, seed=3)
    assert found.answered == found.scheduled == len(DUE)
    assert (found.traces.lag_ns >= 0).all()
    assert (found.traces.latency_ns > found.traces.lag_ns).all()
    assert (found.lost, found.refused) == (0, {})


def test_a_stall_is_charged_to_all_that_waited():
    pause = threading.Event()

    def serve(client, number):
        for place, _ in enumerate(requests_on(client)):
            if place == 10:
                pause.wait(0.15)
            client.sendall(HTTP_ANSWER)

    due = np.arange(100) * 1_000_000  # one a millisecond
    with web_server(serve) as address:
        traces = send_on_time(address, [b"GET / HTTP/1.1\r\n\r\n"], due, connection_count=1)
    assert (traces.refusal_codes == 0).all()
    # Request 10 takes 150 ms. Those that were due meanwhile waited for it, each a millisecond less.
    assert traces.latency_ns[10] > 150e6
    assert (traces.latency_ns[11:90] > 150e6 - 1e6 * (np.arange(11, 90) - 10)).all()


def test_refusals_and_broken_connections_are_distinguished():
    def serve(client, number):
        for place, _ in enumerate(requests_on(client)):
            if place == 5:
                client.sendall(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n")
            elif place == 8:
                return  # closes
            elif place == 6:
                client.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
                if number == 0:
                    return
            else:
                client.sendall(HTTP_ANSWER)

    with web_server(serve) as address:
        traces = send_on_time(address, [b"GET / HTTP/1.1\r\n\r\n"], DUE, connection_count=1)
    assert {0, 503} <= set(traces.refusal_codes.tolist()) <= {0, 503, BROKEN_STATUS}
    assert (traces.latency_ns != NOT_HAPPENED).all()


def test_a_server_that_goes_away_loses_the_rest():
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve():
            client, _ = listening.accept()
            with client:
                for place, _ in enumerate(requests_on(client)):
                    if place == 20:
                        listening.shutdown(socket.SHUT_RDWR)
                        return
                    client.sendall(HTTP_ANSWER)

        thread = threading.Thread(target=serve)
        thread.start()
        request = [b"GET / HTTP/1.1\r\n\r\n"]
        traces = send_on_time(listening.getsockname(), request, DUE, connection_count=1, grace_s=1)
        thread.join()
    assert traces.refusal_codes.tolist() == [0] * 20 + [BROKEN_STATUS] + [0] * (len(DUE) - 21)
    assert (traces.latency_ns[:21] != NOT_HAPPENED).all()
    assert (traces.latency_ns[21:] == NOT_HAPPENED).all()


def test_silence_is_loss():
    with web_server(lambda client, number: list(requests_on(client))) as address:
        traces = send_on_time(address, [b"GET / HTTP/1.1\r\n\r\n"], DUE, connection_count=3, grace_s=0.05)
    assert (traces.latency_ns == NOT_HAPPENED).all()
    assert np.count_nonzero(traces.lag_ns != NOT_HAPPENED) == 3  # no connection was free for the others


def test_the_model_says_what_it_takes():
    asked = []

    def serve(client, number):
        described = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}]}
        content = json.dumps(described).encode()
        for request in requests_on(client):
            asked.append(request)
            answer = content if request.startswith(b"GET /v2/models/m ") else b"{}"
            client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(answer) + answer)

    with web_server(serve) as (host, port):
        found = drive_http(Target("http", host, port), "m", 1000, 0.05, seed=3)
    assert found.answered == found.scheduled == len(asked) - 1
    (tensor,) = json.loads(asked[-1].partition(b"\r\n\r\n")[2])["inputs"]
    assert (tensor["name"], tensor["shape"], len(tensor["data"])) == ("x", [1, 3], 3)


def test_a_model_that_is_not_there_is_named():
    def serve(client, number):
        for _ in requests_on(client):
            client.sendall(b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n")

    with web_server(serve) as (host, port), pytest.raises(LoadError, match="no model 'm'"):
        drive_http(Target("http", host, port), "m", 1000, 0.05)


@pytest.mark.parametrize(
    ("listed", "name"),
    [
        (b'[{"name": "m"}]', "m"),
        (b'[{"name": "m"}, {"name": "n"}]', None),
        (b"[]", None),
        (b'{"models": 3}', None),
        (b"", None),
    ],
)
def test_the_only_model_is_found_by_the_index(listed, name):
    asked = []

    def serve(client, number):
        for request in requests_on(client):
            asked.append(request)
            status = b"200 OK" if listed else b"404 No"
            client.sendall(b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n" % (status, len(listed)) + listed)

    with web_server(serve) as (host, port):
        if name:
            assert find_only_model(Target("http", host, port)) == name
        else:
            with pytest.raises(LoadError, match="instead of exactly one model"):
                find_only_model(Target("http", host, port))
    assert asked[0].startswith(b"POST /v2/repository/index ")


def test_nobody_there():
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # and does not listen
        port = silent.getsockname()[1]
        with pytest.raises(LoadError):
            drive_http(Target("http", "127.0.0.1", port), "m", 1000, 0.05)
        with pytest.raises(LoadError):
            drive_http(Target("http", "127.0.0.1", port), "m", 1000, 0.05, model_input=ECHO_INPUT)
    with pytest.raises(LoadError):
        drive_datagrams(Target("udp", "127.0.0.1", port), 1, 1000, 0.05)


# ------------------------------------------------------------------------------------------- udp


@contextlib.contextmanager
def datagram_server(answers_of):
    """Yield a server that sends `answers_of(datagram)` for every datagram, in a thread; what came is collected."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        server.bind(("127.0.0.1", 0))
        came = []

        def serve():
            while (got := server.recvfrom(4096))[0] != b"end":
                came.append(got[0])
                for each in answers_of(parse(got[0])):
                    server.sendto(each, got[1])

        thread = threading.Thread(target=serve)
        thread.start()
        yield Target("udp", *server.getsockname()), came
        server.sendto(b"end", server.getsockname())
        thread.join()


def answer_to(packet, **fields):
    return serialise(Packet(Kind.ANSWER, packet.model, packet.request, **fields))


def test_packets_are_what_the_codec_reads():
    rows = np.arange(40, dtype=np.uint8).reshape(4, 10)
    with datagram_server(lambda packet: [answer_to(packet)]) as (target, came):
        traces = exchange(target, 7, rows, DUE, first_request=1 << 60, deadline_us=300)
    packets = [parse(each) for each in came]
    assert [each.request for each in packets] == [(1 << 60) + number for number in range(len(DUE))]
    assert {(each.kind, each.model, each.time_us, each.datatype) for each in packets} == {(1, 7, 300, 1)}
    assert [each.payload for each in packets] == [rows[n % 4].tobytes() for n in range(len(DUE))]
    assert (traces.latency_ns > 0).all()
    assert (traces.latency_ns > traces.lag_ns).all()


def test_long_rows_go_in_fragments_and_floats_big_endian():
    rows = np.linspace(0, 1, 2 * 800).reshape(2, 800)
    whole = rows.astype(">f4")
    with datagram_server(lambda packet: [answer_to(packet)] * (packet.fragment == 2)) as (target, came):
        traces = exchange(target, 1, rows, DUE[:60])
    packets = [parse(each) for each in came]
    assert [each.fragment for each in packets] == [0, 1, 2] * 60
    assert {(each.fragments, each.datatype) for each in packets} == {(3, Datatype.FLOAT32)}
    messages = [b"".join(each.payload for each in packets[place : place + 3]) for place in range(0, 180, 3)]
    assert messages == [whole[number % 2].tobytes() for number in range(60)]
    assert (traces.latency_ns > 0).all()


def test_loss_refusals_and_strangers():
    def answers_of(packet):
        return {
            0: [answer_to(packet)],
            1: [],
            2: [serialise(Packet(Kind.REFUSAL, 1, packet.request, code=RefusalCode.LATE))],
            3: [answer_to(packet)] * 2,
            4: [answer_to(packet, fragments=2, payload=bytes(1440))],  # its other half never comes
            5: [b"noise", serialise(Packet(Kind.ANSWER, 1, 1 << 50)), answer_to(packet)],
        }[packet.request % 6]

    with datagram_server(answers_of) as (target, _):
        found = drive_datagrams(target, 1, 2000, 0.1, size=5)
    kinds = np.arange(found.scheduled) % 6
    assert (found.traces.latency_ns[np.isin(kinds, [1, 4])] == NOT_HAPPENED).all()
    assert (found.traces.latency_ns[np.isin(kinds, [0, 2, 3, 5])] > 0).all()
    assert found.refused == {"late": np.count_nonzero(kinds == 2)}
    assert found.lost == np.count_nonzero(np.isin(kinds, [1, 4]))
    assert found.answered + found.lost + sum(found.refused.values()) == found.scheduled == found.sent


def test_an_echo_sends_everything_back():
    with echoing("udp") as target:
        found = drive_datagrams(target, 1, 3000, 0.1)
    assert found.answered == found.scheduled
