"""The server over time: long work, deadlines, models that come and go under load, the end, and what was counted."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from libraries import library, skip_without

skip_without("fastapi", reason="HTTP needs lightbed[serve]")
skip_without("httptools", reason="HTTP needs lightbed[serve]")
skip_without("orjson", reason="HTTP needs lightbed[serve]")
skip_without("prometheus_client", reason="HTTP needs lightbed[serve]")
skip_without("uvicorn", reason="HTTP needs lightbed[serve]")
skip_without("uvloop", reason="HTTP needs lightbed[serve]")

from lightning.errors import ServingError
from lightning.serving.http.fast_path import Infer
from lightning.serving.packets.counts import PacketCounts
from lightning.serving.repository import Repository

serving = library("lightning.serving.server")

pytestmark = pytest.mark.socket

TIMEOUT_S = 20
HOUR_S = 3600
HOUR_US = 3_600_000_000

# ------------------------------------------------------------------------------ work that is long


def test_long_work_does_not_keep_others_from_being_heard(connect, doubled):
    server, double, _ = doubled
    double.gate.clear()
    double.started.clear()
    instance = server_loaded(doubled)
    instance.seconds_per_image = float("inf")
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(connect(server).scores, "m")
        assert double.started.wait(TIMEOUT_S)
        other = connect(server)
        assert other("GET", "/v2/health/ready")[0] == 200
        assert b"lightning_queue 1.0" in other("GET", "/metrics")[1]
        assert not waiting.done()
        double.gate.set()
        assert waiting.result()[0].shape == (3, 2)


def server_loaded(doubled):
    return doubled[2].repository.list_serving()[0]


@pytest.fixture
def http_clock(clock, monkeypatch):
    monkeypatch.setattr("lightning.serving.http.fast_path.time", clock)
    return clock


def test_a_deadline_that_passes_in_the_queue(connect, doubled, images, wait_for, http_clock):
    server, double, _ = doubled
    server_loaded(doubled).seconds_per_image = float("inf")
    double.gate.clear()
    double.started.clear()
    client = connect(server)
    late = client.request_of(images, parameters={"timeout": HOUR_US})
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(connect(server).scores, "m")
        assert double.started.wait(TIMEOUT_S)
        second = threads.submit(client, "POST", "/v2/models/m/infer", late)
        wait_for(lambda: server_loaded(doubled).worker._work_queue.qsize() == 1)
        runs = len(double.warmed)
        http_clock.ahead_s = 2 * HOUR_S
        double.gate.set()
        first.result()
        status, found, _ = second.result()
    assert (status, found["code"]) == (504, "serving.deadline")
    assert len(double.warmed) == runs + len(images) - 1  # the rest of the first; the late one was not begun


def test_more_than_it_can_hold_is_refused(connect, doubled, images, wait_for):
    server, double, infer = doubled
    server_loaded(doubled).seconds_per_image = float("inf")
    client = connect(server)
    double.gate.clear()
    with ThreadPoolExecutor(2) as threads:
        asked = [threads.submit(connect(server).scores, "m") for _ in range(2)]
        wait_for(lambda: infer.counts.in_flight_count == 2)
        status, found, _ = client("POST", "/v2/models/m/infer", client.request_of(images))
        double.gate.set()
        assert all(each.result()[0].shape == (3, 2) for each in asked)
    assert (status, found["code"]) == (503, "serving.busy")


def test_at_its_end_it_answers_what_has_been_asked(connect, opened, model):
    repository = Repository(opened)
    repository.load("m", model).seconds_per_image = float("inf")
    opened[0].gate.clear()
    opened[0].started.clear()
    with ThreadPoolExecutor(1) as threads:
        with serving.HttpServer(Infer(repository)) as server:
            waiting = threads.submit(connect(server).scores, "m")
            assert opened[0].started.wait(TIMEOUT_S)
            threading.Timer(0.05, opened[0].gate.set).start()
        assert waiting.result()[0].shape == (3, 2)
    with pytest.raises(ConnectionRefusedError):
        connect(server)("GET", "/v2")


def test_a_port_has_one_server(opened):
    infer = Infer(Repository(opened))
    first = serving.HttpServer(infer)
    second = serving.HttpServer(infer, port=first.address.port)  # nobody listens yet
    with first:
        with pytest.raises(ServingError, match="cannot listen on"):
            second.__enter__()
        with pytest.raises(ServingError, match="cannot listen on"):
            serving.HttpServer(infer, port=first.address.port)


def test_a_fault_of_ours_is_an_answer_too(connect, doubled, caplog, images):
    server, double, _ = doubled
    client = connect(server)
    double.run = lambda inputs, keys: 1 / 0
    status, found, _ = client("POST", "/v2/models/m/infer", client.request_of(images))
    assert (status, found["code"]) == (500, "internal")
    assert "ZeroDivisionError" in caplog.text


# ----------------------------------------------------------------------------- models come and go


def test_models_are_swapped_under_load_and_no_request_is_lost(connect, opened, model, other_model, wait_for):
    repository = Repository(opened)
    repository.load("m", model)
    stop = threading.Event()
    versions = []

    def ask(server):
        client = connect(server)
        count = 0
        while not stop.is_set():
            versions.append(client.scores("m")[1]["model_version"])
            count += 1
        return count

    with serving.HttpServer(Infer(repository)) as server, ThreadPoolExecutor(2) as threads:
        asked = [threads.submit(ask, server) for _ in range(2)]
        try:
            for version in range(2, 7):
                swap = connect(server)("POST", "/v2/repository/models/m/load")
                assert swap[:2] == (200, {"name": "m", "version": str(version)})
                wait_for(lambda wanted=str(version): wanted in versions)
        finally:
            stop.set()
        count = sum(each.result() for each in asked)
    assert len(versions) == count
    assert set(versions) >= {"2", "3", "4", "5", "6"}
    assert [each.closed for each in opened] == [True] * 5 + [False]
    repository.close()


def test_models_are_unloaded_listed_and_loaded_again(client, images):
    assert client("POST", "/v2/repository/models/small/unload")[0] == 200
    assert client("POST", "/v2/models/small/infer", client.request_of(images))[0] == 404
    assert client("GET", "/v2/health/ready")[:2] == (503, {"ready": False})
    _, index, _ = client("POST", "/v2/repository/index")
    assert [(each["name"], each["state"]) for each in index] == [("small", "UNAVAILABLE")]
    assert client("POST", "/v2/repository/index", {"ready": True})[1] == []
    assert client("POST", "/v2/repository/models/small/load")[0] == 200
    _, index, _ = client("POST", "/v2/repository/index")
    assert [(each["name"], each["state"]) for each in index] == [("small", "READY")]
    client.scores()


def test_files_cannot_be_named_from_afar(client):
    body = {"parameters": {"file": "/etc/passwd"}}
    status, found, _ = client("POST", "/v2/repository/models/small/load", body)
    assert (status, found["code"]) == (400, "serving.malformed")


def test_a_damaged_file_is_refused_and_the_old_model_goes_on(client, directory):
    whole = (directory / "small.lng").read_bytes()
    (directory / "small.lng").write_bytes(whole[: len(whole) // 2])
    try:
        status, found, _ = client("POST", "/v2/repository/models/small/load")
        assert (status, found["code"]) == (422, "model-file")
        client.scores()
    finally:
        (directory / "small.lng").write_bytes(whole)


@pytest.mark.parametrize("seconds_per_image", [0.0, 0.003], ids=["at once", "in the model's thread"])
def test_a_deadline_that_passes_while_the_model_runs_is_missed(
    connect, doubled, images, seconds_per_image, http_clock
):
    server, double, _ = doubled
    client, instance = connect(server), server_loaded(doubled)
    instance.seconds_per_image = seconds_per_image
    double.gate.clear()
    double.started.clear()

    def let_go():
        assert double.started.wait(TIMEOUT_S)
        http_clock.ahead_s = 2 * HOUR_S
        double.gate.set()

    thread = threading.Thread(target=let_go)
    thread.start()
    request = client.request_of(images[:1], parameters={"timeout": HOUR_US})
    status, found, _ = client("POST", "/v2/models/m/infer", request)
    thread.join()
    assert (status, found["code"]) == (504, "serving.deadline")
    assert client.metrics()['lightning_request_seconds_sum{model="m"}'] > 2 * HOUR_S


# ------------------------------------------------------------------------------------ what it counts


def test_metrics_add_up(connect, doubled, images):
    server, _, _ = doubled
    client = connect(server)
    for _ in range(4):
        client.scores("m")
    client("POST", "/v2/models/m/infer", {})
    client("POST", "/v2/models/m/infer", client.request_of(images[:, :7]))
    client("POST", "/v2/models/any/infer", {})
    client("POST", "/v2/models/thing/infer", {})
    found = client.metrics()
    assert found['lightning_requests_total{model="m"}'] == 6
    assert found['lightning_failures_total{model="m",reason="serving.malformed"}'] == 1
    assert found['lightning_failures_total{model="m",reason="input"}'] == 1
    assert found['lightning_failures_total{model="",reason="serving.unknown-model"}'] == 2
    assert found['lightning_images_total{model="m"}'] == 12
    assert found['lightning_events_total{event="clipped_readouts",model="m"}'] == 12
    assert found['lightning_request_seconds_count{model="m"}'] == 6
    assert found['lightning_request_seconds_bucket{le="+Inf",model="m"}'] == 6
    assert found['lightning_model_loaded{model="m"}'] == 1
    assert found['lightning_model_users{model="m"}'] == 0
    assert found["lightning_queue"] == 0


def test_packets_are_counted_on_the_same_page(connect, opened, model):
    repository = Repository(opened)
    with serving.HttpServer(
        Infer(repository), read_packets=lambda: PacketCounts(7, answered=5, late=1, waiting=1)
    ) as server:
        client = connect(server)
        found = client.metrics()
    assert found['lightning_packets_total{outcome="answered"}'] == 5
    assert found['lightning_packets_total{outcome="late"}'] == 1
    assert found["lightning_packets_received_total"] == 7
    assert found["lightning_packets_waiting"] == 1
