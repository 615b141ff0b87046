"""`lightning packets`: requests with their answers; `lightning trace`: one request, cycle by cycle."""

import json
import struct

import numpy as np
import pytest
from libraries import skip_without

skip_without("typer", reason="needs lightbed[kit]")

from lightning.cli import run_app
from lightning.compiler import load_or_compile
from lightning.execution import open_executor
from lightning.serving.packets import Kind, parse


@pytest.fixture
def network(tmp_path):
    random = np.random.default_rng(3)
    np.savez(tmp_path / "net.npz", w1=random.normal(size=(12, 40)), w2=random.normal(size=(5, 12)))
    return tmp_path / "net.npz"


def test_every_line_has_a_request_and_its_exact_answer(network, capsys):
    assert run_app(["packets", str(network), "--requests", "70", "--number", "3", "--seed", "9"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["number"] for line in lines] == list(range(70))
    executor = open_executor(load_or_compile(network), "exact")
    for line in lines:
        packet = parse(bytes.fromhex(line["request"]))
        assert (packet.kind, packet.model, packet.request) == (
            Kind.REQUEST,
            3,
            line["number"],
        )
        answers = executor.run(np.frombuffer(packet.payload, np.uint8)[None])
        chosen, count, *scores = struct.unpack(">II5f", bytes.fromhex(line["answer"]))
        assert (chosen, count, scores) == (answers.classes[0], 5, answers.scores[0].tolist())
    assert lines[0]["request"][64:] == lines[64]["request"][64:]  # 64 random rows, in turns
    assert lines[0]["request"][64:] != lines[1]["request"][64:]


def test_rows_of_a_file_are_sent(network, tmp_path, capsys):
    rows = np.arange(80, dtype=np.uint8).reshape(2, 40)
    np.save(tmp_path / "rows.npy", rows)
    assert run_app(["packets", str(network), "--requests", "2", "--data", str(tmp_path / "rows.npy")]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [parse(bytes.fromhex(line["request"])).payload for line in lines] == [
        row.tobytes() for row in rows
    ]


def test_rows_that_are_not_bytes_are_refused(network, tmp_path, capsys):
    np.save(tmp_path / "rows.npy", np.zeros((2, 40), np.float32))
    assert run_app(["packets", str(network), "--data", str(tmp_path / "rows.npy")]) == 1
    assert "holds float32, not bytes" in capsys.readouterr().err


@pytest.mark.hdl
def test_a_trace_is_drawn_and_told(network, tmp_path, capsys):
    skip_without("lark", "matplotlib")
    png = tmp_path / "request.png"
    assert run_app(["trace", str(network), "--png", str(png), "--json", "--seed", "4"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["simulated"] is True
    assert found["counts"]["sequencer.row"] == {"targets": [3, 1], "fires": 17}
    assert found["counts"]["layers.layer"] == {"targets": [2], "fires": 1}
    assert len(found["layers"]) == 2
    assert found["cycles"] > found["layers"][1]
    image = np.random.default_rng(4).integers(0, 256, 40, np.uint8)
    assert found["class"] == open_executor(load_or_compile(network), "exact").run(image[None]).classes[0]
    assert png.read_bytes().startswith(b"\x89PNG")


def test_a_trace_needs_a_model_that_fits_and_a_plot_that_can_be_drawn(network, tmp_path, capsys):
    assert run_app(["trace", str(network), "--png", str(tmp_path / "request.txt")]) == 1
    assert "no known plot format" in capsys.readouterr().err
    np.savez(tmp_path / "wide.npz", w1=np.ones((10, 1500)))
    assert run_app(["trace", str(tmp_path / "wide.npz"), "--png", str(tmp_path / "request.png")]) == 1
    assert "1500 inputs" in capsys.readouterr().err


def test_an_image_of_other_values_than_bytes_is_refused(network, tmp_path, capsys):
    np.save(tmp_path / "image.npy", np.full(40, 0.5))
    assert run_app(["trace", str(network), "--image", str(tmp_path / "image.npy")]) == 1
    assert "takes only integers from 0 to 255" in capsys.readouterr().err
