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

from testbed.cli.forwarding import COMMANDS
from testbed.cli.output import run_app
from testbed.service.request import command_of
from testbed.service.requests import REQUESTS

MODEL = ["--hosts", "model"]
RING = [["apply", "LAB", "--simplex", *MODEL]]
LEASE = [["lease", "request", "LAB", "host:a", "--note", "a ring"]]
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
    ([], LEASE[0]),
    (LEASE, ["lease", "extend", "LAB", "LEASE", "--ttl", "2h"]),
    (LEASE, ["lease", "release", "LAB", "LEASE"]),
    (LEASE, ["lease", "break", "LAB", "LEASE", "--reason", "a test"]),
    ([], ["maintenance", "on", "LAB", "--reason", "a fan"]),
    ([["maintenance", "on", "LAB", "--reason", "a fan"]], ["maintenance", "off", "LAB"]),
    ([], ["stop", "LAB", "--why", "hands"]),
    ([["stop", "LAB"]], ["stop", "LAB", "--release"]),
]
"""Commands that change something, each with what comes before it, done again before the second way."""
AFTER = {
    "maintenance": ["maintenance", "off", "LAB"],
    "stop": ["stop", "LAB", "--release"],
    "lease": ["lease", "release", "LAB", "LEASE"],
}

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
    change = tmp_path / "change.json"

    def one(words, server=""):
        files = {"LAB": str(up[1]), "CHANGE": str(change)}
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
    words = ["apply", str(up[1]), *MODEL, "--json", "--runs-dir", str(running.runs)]
    assert run_app(words) == 0


SOON = {
    "plan LAB",
    "path LAB a nobody --hosts model",
    "env LAB",
    "journal LAB none",
    "lease list LAB --ended",
}
SOON |= {
    "apply LAB --epoch 77 --hosts model",
    "rollback LAB --hosts model",
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
            if words[0] in AFTER:
                ask(AFTER[words[0]], server)

    assert came_to[0] == came_to[1]


def test_every_command_that_a_service_carries_out_is_in_the_tables():
    run = {" ".join(words[:2]) if words[0] == "lease" else words[0] for words in LOOKING}
    run |= {" ".join(words[:2]) if words[0] == "lease" else words[0] for _, words in MOVING}

    assert run == COMMANDS
    assert {command_of(one) for one in REQUESTS} | {"stop"} == COMMANDS


@pytest.mark.parametrize(
    "words",
    [
        ["discover", "lab.yaml"],
        ["runs"],
        ["runs", "query", "select 1"],
        ["report", "last"],
        ["metrics"],
        ["audit"],
        ["doctor"],
        ["switch", "sim://x", "read"],
        ["sim", "status"],
        ["schedule", "jobs.yaml"],
        ["topology"],
        ["verify", "lab.yaml", "--narrow"],
        ["plan", "lab.yaml", "--out", "x.json"],
        ["drift", "lab.yaml", "--every", "5m"],
    ],
    ids=" ".join,
)
def test_what_works_here_alone_says_so(words, capsys):
    assert run_app([*words, "--server", "http://127.0.0.1:9", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "service.here"
