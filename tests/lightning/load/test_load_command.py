"""`lightning load` against the packet server and against an echo of its own."""

import json

import numpy as np
import pytest
from libraries import skip_without
from needs import needs

skip_without("typer", reason="the command line needs it")

from lightning.cli import run_app
from lightning.compiler import Options, compile_network
from lightning.execution.factory import open_executor
from lightning.networks import load_network
from lightning.serving import Repository
from lightning.serving.packets.server import DatagramServer


@pytest.fixture
@needs("socket")
def server(tmp_path):
    np.savez(tmp_path / "w.npz", w1=np.random.default_rng(0).normal(size=(10, 64)).astype(np.float32))
    repository = Repository(lambda each: open_executor(each, "exact"))
    repository.load("w", compile_network(load_network(tmp_path / "w.npz"), None, Options(scheme="published")))
    with DatagramServer(repository, is_fast_path_enabled=False) as made:
        yield "udp://{}:{}".format(*made.address)
    repository.close()


def document_of(capsys):
    return json.loads(capsys.readouterr().out)


def test_figures_for_every_rate(server, capsys):
    rates = ["--rate", "200", "--rate", "400", "--seconds", "0.2", "--size", "64"]
    assert run_app(["load", server, "--model", "1", *rates, "--seed", "3", "--json"]) == 0
    found = document_of(capsys)
    assert (found["ok"], found["target"], found["seed"], found["model"]) == (True, server, 3, "1")
    assert found["version"]
    assert [each["rate"] for each in found["results"]] == [200, 400]
    assert all(each["answered"] == each["scheduled"] > 10 for each in found["results"])


def test_refusals_are_reported_by_name(server, capsys):
    arguments = ["--rate", "300", "--seconds", "0.1", "--json"]
    for options, name, hint in (
        (["--model", "5"], "unknown_model", "--model"),
        (["--size", "5"], "input", "--size"),
        (["--size", "64", "--deadline-us", "1"], "late", "--deadline-us"),
    ):
        assert run_app(["load", server, *options, *arguments]) == 1
        found = document_of(capsys)
        (result,) = found["results"]
        assert result["refused"] == {name: result["scheduled"]}
        assert (found["ok"], found["error"]["code"]) == (False, "load")
        assert hint in found["error"]["hint"]


def test_a_load_without_an_answer_fails_after_its_table(server, capsys, tmp_path):
    pytest.importorskip("matplotlib", reason="plots are drawn by it")
    picture = tmp_path / "none.png"
    arguments = ["--rate", "300", "--rate", "400", "--seconds", "0.1", "--png", str(picture)]
    assert run_app(["load", server, *arguments]) == 1
    reported = capsys.readouterr()
    row = reported.out.splitlines()[2].split()
    assert row[2:5] == ["-", "-", "-"]
    assert row[-1] == "input"
    assert "none of 54 requests was answered" in reported.err
    assert "--size" in reported.err
    assert picture.exists()


@pytest.mark.parametrize("name", ["a.xyz", "nowhere/a.png"])
def test_a_plot_that_cannot_be_written_is_refused_before_the_load(server, capsys, tmp_path, name):
    pytest.importorskip("matplotlib", reason="plots are drawn by it")
    assert run_app(["load", server, "--seconds", "1000", "--png", str(tmp_path / name), "--json"]) == 1
    assert document_of(capsys)["error"]["code"] == "picture"


def test_a_table_and_a_plot(server, capsys, tmp_path):
    pytest.importorskip("matplotlib", reason="plots are drawn by it")
    picture = tmp_path / "latency.png"
    for rates in (["--rate", "300"], ["--rate", "300", "--rate", "500"]):
        run = ["load", server, *rates, "--seconds", "0.1", "--size", "64", "--png", str(picture)]
        assert run_app(run) == 0
        assert picture.read_bytes().startswith(b"\x89PNG")
        reported = capsys.readouterr().out
        assert "p99.9" in reported
        assert f"written: {picture}" in reported
        picture.unlink()


@pytest.mark.socket
@pytest.mark.process
@pytest.mark.parametrize("scheme", ["http", "udp"])
def test_the_generator_against_an_echo(scheme, capsys):
    assert run_app(["load", scheme, "--echo", "--rate", "500", "--seconds", "0.1", "--json"]) == 0
    found = document_of(capsys)
    assert found["echo"] is True
    assert found["results"][0]["answered"] == found["results"][0]["scheduled"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["ftp://here:1"],
        ["udp://127.0.0.1:9", "--model", "lenet"],
        ["smtp", "--echo"],
        ["udp://127.0.0.1:9", "--rate", "0"],
        ["udp://127.0.0.1:9", "--data", "missing.npy"],
    ],
)
def test_what_cannot_be_loaded_is_named(arguments, capsys):
    assert run_app(["load", *arguments, "--json"]) == 1
    assert document_of(capsys)["error"]["code"] == "load"
