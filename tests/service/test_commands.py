"""Every command that a service carries out, here and through the service: the same document, the same exit code."""

from __future__ import annotations

import json
import re

import pytest
from libraries import skip_without

skip_without("asyncssh")
skip_without("fastapi")
skip_without("httpx")
skip_without("sqlalchemy")

from testbed.cli.app import run_app
from testbed.commands.table import list_declared_commands
from testbed.lab.inventory import load_lab
from testbed.operate.change_file import read_change
from testbed.service.requests import get_command, list_models

MODEL = ["--hosts", "model"]
RING = [["apply", "LAB", "--simplex", *MODEL]]
LEASE = [["lease", "request", "LAB", "host:a", "--reason", "a ring"]]
LOOKING = [
    ["plan", "LAB"],
    ["plan", "LAB", "--simplex", "--patch-list"],
    ["plan", "LAB", "--change", "CHANGE"],
    ["plan", "LAB", "--demand", "12"],
    ["verify", "LAB", *MODEL],
    ["verify", "LAB", "--epoch", "1", *MODEL],
    ["path", "a", "d", "--lab", "LAB", *MODEL],
    ["path", "LAB", "a", "nobody", *MODEL],
    ["drift", "LAB", "--since", "2026-05-01T12:00", *MODEL],
    ["env", "LAB"],
    ["repair", "LAB", *MODEL],
    ["history", "LAB"],
    ["journal", "LAB"],
    ["journal", "LAB", "none"],
    ["lease", "list", "LAB", "--ended"],
    ["plan", "LAB", "--out", "OUT"],
    ["discover", "LAB", "--output", "OUT", "--force"],
    ["runs"],
    ["runs", "query", "select count(*) as n from runs"],
    ["runs", "query", "no SQL"],
    ["runs", "compare", "last", "last"],
    ["runs", "explain", "last"],
    ["runs", "trend"],
    ["runs", "trend", "--lab", "NAME", "--quantity", "power"],
    ["report", "last", "--out", "OUT"],
    ["metrics"],
    ["metrics", "LAB"],
    ["audit", "--verify"],
    ["doctor"],
    ["doctor", "LAB"],
    ["switch", "ADDRESS", "identity"],
    ["switch", "ADDRESS", "ports"],
    ["switch", "ADDRESS", "read"],
    ["switch", "ADDRESS", "power", "1", "2"],
    ["switch", "ADDRESS", "power", "none"],
]
"""Commands that change nothing, on the lab as it stands: here and there one after the other."""
MOVING = [
    (RING, ["apply", "LAB", "--method", "geometric", *MODEL]),
    ([], ["apply", "LAB", "--epoch", "77", *MODEL]),
    (RING, ["apply", "LAB", "--change", "CHANGE", *MODEL]),
    ([*RING, ["apply", "LAB", "--method", "geometric", *MODEL]], ["rollback", "LAB", *MODEL]),
    (RING, ["repair", "LAB", "--apply", *MODEL]),
    ([], ["resume", "LAB", *MODEL]),
    ([], ["confirm", "LAB"]),
    (RING, ["nccl", "LAB", "--sizes", "1KiB:2KiB", *MODEL]),
    (RING, ["job", "LAB", "--iterations", "1", *MODEL]),
    ([], ["run", "LAB", "--nodes", "2", "--", "hostname"]),
    ([], LEASE[0]),
    (LEASE, ["lease", "extend", "LAB", "LEASE", "--ttl", "2h"]),
    (LEASE, ["lease", "release", "LAB", "LEASE"]),
    (LEASE, ["lease", "break", "LAB", "LEASE", "--reason", "a test"]),
    ([], ["maintenance", "on", "LAB", "--reason", "a fan"]),
    ([["maintenance", "on", "LAB", "--reason", "a fan"]], ["maintenance", "off", "LAB"]),
    ([], ["stop", "LAB", "--reason", "hands"]),
    (RING, ["verify", "LAB", "--narrow", *MODEL]),
    ([*RING, ["nccl", "LAB", "--sizes", "1KiB", *MODEL]], ["runs", "query", "from runs select distinct lab"]),
    ([*RING, ["nccl", "LAB", "--sizes", "1KiB", *MODEL]], ["report", "last", "--out", "OUT"]),
    ([*RING, ["nccl", "LAB", "--sizes", "1KiB", *MODEL]], ["runs", "compare", "last", "last"]),
    ([*RING, ["nccl", "LAB", "--sizes", "1KiB", *MODEL]], ["runs", "explain", "last"]),
    (RING, ["switch", "ADDRESS", "connect", "1:100", "--replace"]),
    ([], ["switch", "ADDRESS", "connect", "1:2"]),
    (RING, ["switch", "ADDRESS", "disconnect", "1"]),
    ([], ["switch", "ADDRESS", "apply", "1:49", "2:50", "--dry-run"]),
    ([], ["switch", "ADDRESS", "apply", "--file", "PAIRS", "--scope", "1"]),
    ([], ["switch", "ADDRESS", "shutter", "close", "1"]),
    ([], ["switch", "ADDRESS", "home"]),
    ([["stop", "LAB"]], ["stop", "LAB", "--release"]),
]
"""Commands that change something, each with what comes before it, done again before the second way."""
AFTER = {
    "maintenance": ["maintenance", "off", "LAB"],
    "stop": ["stop", "LAB", "--release"],
    "lease": ["lease", "release", "LAB", "LEASE"],
    "shutter": ["switch", "ADDRESS", "shutter", "open", "1"],
}
"""Command lines that undo a command, by a word of it."""

VOLATILE = {"revision", "expected", "predicted", "durations", "directory", "token", "owner", "who", "newest"}
VOLATILE |= {"readings_since", "slope_db_per_day"}
_ID = re.compile(r"\d{8}T\d{6}-[0-9a-f]+")
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(\+00:00| UTC)?")
_IS_TIME = re.compile(
    r".*(_s|_ms|_us|_at|expires|taken|started|finished|epoch|_mbps|_db|_dbm|readings|busy|difference)$"
)


@pytest.fixture(scope="module")
def runs_dir(running):
    return running.runs


@pytest.fixture
def ask(running, up, capsys, monkeypatch, tmp_path):
    """Provide a function that runs a command line, here or through the service; what it came to, without its times."""
    change, pairs = tmp_path / "change.json", tmp_path / "pairs"
    pairs.write_text("1:60  # a pair\n", encoding="utf-8")

    def one(words, server=""):
        files = {"LAB": str(up[1]), "CHANGE": str(change), "OUT": str(tmp_path / "out"), "PAIRS": str(pairs)}
        files |= {"NAME": load_lab(up[1]).name, "ADDRESS": load_lab(up[1]).switches[0].address}
        if "LEASE" in words:
            leases = json.loads(run(["lease", "list", files["LAB"]])[1])["leases"]
            files["LEASE"] = leases[-1]["id"] if leases else "none"
        if "CHANGE" in words:
            assert run(["plan", files["LAB"], "--method", "geometric", "--out", str(change)])[0] in (0, 2)
        code, out = run([files.get(word, word) for word in words], server)
        return code, plain(json.loads(out))

    def run(words, server=""):
        with monkeypatch.context() as patched:
            if server:
                patched.setenv("LIGHTBED_SERVER", server)
                patched.setenv("LIGHTBED_TOKEN", running.token("admin"))
            else:
                patched.setenv("LIGHTBED_RUNS", str(running.runs))
            code = run_app([*words, "--json"])
        return code, capsys.readouterr().out

    return one


def plain(document):
    """Return a document without times, ids, epochs and who asked: without what differs between two runs."""
    if isinstance(document, dict):
        kept = {name: value for name, value in document.items() if name not in VOLATILE}
        return {name: "-" if _IS_TIME.match(name) else plain(value) for name, value in kept.items()}
    if isinstance(document, list):
        return [plain(one) for one in document]
    if isinstance(document, str):
        return re.sub(r"epoch[ =]\d+|\(by .*\)|\d+ ms", "N", _TIME.sub("TIME", _ID.sub("ID", document)))
    return document


@pytest.fixture(scope="module")
def stands(running, up):
    """Have a topology in force."""
    put_in_force(running, up)


def put_in_force(running, up):
    words = ["apply", str(up[1]), *MODEL, "--json", "--runs-dir", str(running.runs)]
    assert run_app(words) == 0


SOON = {
    "plan LAB",
    "path LAB a nobody --hosts model",
    "switch ADDRESS read",
    "maintenance on LAB --reason a fan",
}
"""Command lines that `make test` runs; the others take minutes together."""


def case(words, *before):
    name = " ".join(words)
    return pytest.param(*before, words, id=name, marks=() if name in SOON else pytest.mark.long)


@pytest.mark.parametrize("words", [case(words) for words in LOOKING])
def test_a_command_that_looks_is_the_same_through_the_service(running, ask, stands, words):
    assert ask(words, running.url) == ask(words)


@pytest.mark.parametrize(("before", "words"), [case(words, before) for before, words in MOVING])
def test_a_command_that_moves_is_the_same_through_the_service(running, ask, stands, before, words):
    came_to = []
    for server in ("", running.url):
        try:
            for each in before:
                ask(each, server)
            came_to.append(ask(words, server))
        finally:
            for word in AFTER.keys() & set(words):
                ask(AFTER[word], server)

    assert came_to[0] == came_to[1]


def through(running, monkeypatch, words, role="operator"):
    """Run a command line through the service; return its exit code."""
    with monkeypatch.context() as patched:
        patched.setenv("LIGHTBED_SERVER", running.url)
        patched.setenv("LIGHTBED_TOKEN", running.token(role))
        return run_app([*map(str, words)])


def test_a_file_that_a_command_writes_is_written_here(running, up, stands, monkeypatch, tmp_path, capsys):
    change = tmp_path / "new" / "change.json"

    assert through(running, monkeypatch, ["plan", up[1], "--simplex", "--out", change]) in (0, 2)
    assert read_change(change).intent.lab == load_lab(up[1]).name
    assert str(running.runs) not in capsys.readouterr().out


def test_a_file_is_not_replaced_without_force(running, up, monkeypatch, tmp_path, capsys):
    there = tmp_path / "lab.yaml"
    there.write_text("mine", encoding="utf-8")

    assert through(running, monkeypatch, ["discover", up[1], "-o", there, "--json"]) == 1
    assert "exists" in json.loads(capsys.readouterr().out)["error"]["message"]
    assert there.read_text(encoding="utf-8") == "mine"


@pytest.mark.long
def test_readings_through_the_service_go_on_until_interrupted(running, up, monkeypatch, capsys):
    put_in_force(running, up)  # commands above have moved the switch by hand
    capsys.readouterr()
    waits = []

    def two_waits(seconds):
        waits.append(seconds)
        if len(waits) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr("testbed.cli.parameters.sleep", two_waits)
    words = ["drift", up[1], *MODEL, "--every", "5m", "--json"]

    assert through(running, monkeypatch, words) == 130
    assert [json.loads(line)["ok"] for line in capsys.readouterr().out.splitlines()] == [True, True]


@pytest.mark.long
@pytest.mark.parametrize("named", ["ocs1", "NAME/ocs1"])
def test_a_switch_is_named_as_in_its_lab(running, up, monkeypatch, capsys, named):
    lab = load_lab(up[1])
    switch = named.replace("NAME", lab.name).replace("ocs1", lab.switches[0].name)

    assert through(running, monkeypatch, ["switch", switch, "identity", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["address"] == lab.switches[0].address


def test_a_switch_of_elsewhere_is_none_of_the_service(running, monkeypatch, capsys):
    words = ["switch", "polatis+scpi://127.0.0.1:9", "read", "--json"]

    assert through(running, monkeypatch, words) == 1
    assert "is not a switch of the service's labs" in json.loads(capsys.readouterr().out)["error"]["message"]


def command_in(words):
    """Return the command of a command line: of groups with the second word, of a switch with the third."""
    if words[0] == "switch":
        return f"switch {words[2]}"
    is_group = words[0] == "lease" or (words[0] == "runs" and len(words) > 1)
    return " ".join(words[:2]) if is_group else words[0]


def test_every_command_that_a_service_carries_out_is_in_the_tables():
    carried_out = {words for words, command in list_declared_commands() if command.role is not None}
    assert {command_in(words) for words in [*LOOKING, *(words for _, words in MOVING)]} == carried_out
    assert {get_command(one) for one in list_models()} - {"verify --narrow"} | {"stop"} == carried_out


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["sim", "status"],
        ["schedule", "jobs.yaml"],
        ["topology"],
        ["backup", "x.tar"],
        ["switch", "sim://x", "watch"],
    ],
    ids=" ".join,
)
def test_what_works_here_alone_says_so(words, capsys):
    assert run_app([*words, "--server", "http://127.0.0.1:9", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "service.here"
