"""Recordings: complete, without secrets, and good as tests."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path

import pytest
from needs import needs

from ocs_drivers import Credentials, address, families, open_switch
from ocs_drivers.errors import OcsError, ProtocolDesync
from ocs_drivers.transports.recording import ReplayTransport, record, record_sessions, redact

TRANSCRIPTS = sorted((Path(__file__).parents[1] / "transcripts").glob("*.jsonl"))


def use(switch) -> dict[str, object]:
    """Do what is done in every recording, and return what came of it."""
    size = switch.capabilities
    pairs = {1: size.inputs + 2, 2: size.inputs + 1} if size.bank_outputs is None else {1: size.inputs + 2}
    report = switch.connect(pairs)
    found = {
        "identity": switch.identity(),
        "ports": len(switch.ports()),
        "pairs": sorted(switch.read().connections.items()),
        "statuses": sorted(status.value for status in report.pairs.values()),
        "power": switch.power([1, size.inputs + 1]),
    }
    if size.disconnects:
        tied = {source for group in switch.read().tied for source, _ in group}
        switch.disconnect([1, *sorted(tied - {1})])  # half of a two-way circuit is refused
        found["left"] = sorted(switch.read().connections.items())
    return found


@pytest.fixture
@needs("process", "socket")
def tl1_twin(start_twin):
    return start_twin("polatis", "--size=8x8", "--switch-time-ms=1", "--password=s3cret-word").urls["tl1"]


def replaying(monkeypatch, path, scheme):
    played = ReplayTransport(path)
    for name in ("SocketTransport",):
        monkeypatch.setattr(f"ocs_drivers.transports.lines.{name}", lambda *_, **__: played)
    monkeypatch.setattr("ocs_drivers.transports.visa.VisaTransport", lambda *_, **__: played)
    for module, name in (("serial_port", "SerialTransport"), ("ssh", "SshTransport")):
        try:
            monkeypatch.setattr(f"ocs_drivers.transports.{module}.{name}", lambda *_, **__: played)
        except ImportError:
            continue
    device = json.loads(path.read_text().partition("\n")[0])["device"]
    parsed = address.parse_address(device if "://" in device else f"{scheme}://replayed")
    return played, families.find_driver_factory(scheme)(parsed, timeout_s=5.0, credentials=None)


def test_what_was_recorded_is_played_back_to_the_same_end(tl1_twin, tmp_path, monkeypatch):
    path = tmp_path / "polatis+tl1.jsonl"
    with record_sessions(path), open_switch(tl1_twin, credentials=("admin", "s3cret-word")) as switch:
        live = use(switch)

    played, switch = replaying(monkeypatch, path, "polatis+tl1")
    with switch:
        again = use(switch)

    assert again == live
    assert played.is_finished


def test_a_recording_holds_no_password(tl1_twin, tmp_path):
    path = tmp_path / "polatis+tl1.jsonl"
    with record_sessions(path), open_switch(tl1_twin, credentials=("admin", "s3cret-word")):
        pass
    assert "s3cret-word" not in path.read_text()
    assert "ACT-USER" in path.read_text()


def test_what_led_to_a_crash_is_in_the_file_already(tl1_twin, tmp_path):
    path = tmp_path / "polatis+tl1.jsonl"
    with record_sessions(path), open_switch(tl1_twin, credentials=("admin", "s3cret-word")):
        whats = [json.loads(line)["what"] for line in path.read_text().splitlines()]
    assert whats[:3] == ["open", "sent", "received"]


def test_a_recording_is_never_written_over(tmp_path):
    path = tmp_path / "kept.jsonl"
    path.write_text("kept")
    with pytest.raises(FileExistsError), record_sessions(path):
        pass
    assert path.read_text() == "kept"


def test_nothing_is_recorded_outside():
    transport = object()
    assert record(transport, "device") is transport


@pytest.mark.parametrize(
    "secret",
    [
        b"ACT-USER::me:1::tops3cret;",
        b"GET / HTTP/1.1\r\nAuthorization: Basic " + b64encode(b"me:tops3cret") + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\ncookie: session=tops3cret\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nSet-Cookie: session=tops3cret; Path=/\r\n\r\n",
        b"tops3cret\r\n",
        b"x " + b64encode(b"me:tops3cret"),
    ],
)
def test_secrets_are_blanked(secret):
    clean = redact(secret, frozenset({Credentials("me", "tops3cret")}))
    assert b"tops3cret" not in clean
    assert b64encode(b"me:tops3cret") not in clean
    assert b"***" in clean


def test_another_byte_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "polatis+tl1.jsonl"
    path.write_text(json.dumps({"s": 0, "device": "d", "what": "sent", "data": "RTRV-HDR:::1:;\r\n"}) + "\n")
    _, switch = replaying(monkeypatch, path, "polatis+tl1")
    with pytest.raises(ProtocolDesync, match="does not follow the recording"):
        switch.open()


def test_a_line_that_was_lost_is_lost_again(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps({"s": 0, "device": "d", "what": "lost"}) + "\n")
    played = ReplayTransport(path)
    with pytest.raises(OcsError, match="as recorded"):
        played.receive(None)
    assert played.is_finished


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_shipped_transcripts_still_play(path, monkeypatch):
    """Each was recorded from the twin of its family; `tools/record_transcripts` makes them again."""
    pytest.importorskip("pyvisa_py")
    pytest.importorskip("asyncssh")
    pytest.importorskip("h11")
    monkeypatch.setattr("ocs_drivers.timing.SystemClock.sleep", lambda *_: None)
    played, switch = replaying(monkeypatch, path, path.stem)
    with switch:
        found = use(switch)
    assert played.is_finished
    assert set(found["statuses"]) == {"done"}
    assert found["identity"].vendor


def test_every_family_has_a_transcript():
    assert len(TRANSCRIPTS) >= 8
