"""`lightning compile` and `lightning explain`: from a file of weights to a model, and what is reported of it."""

from __future__ import annotations

import json

import numpy as np
import pytest
from libraries import skip_without

skip_without("typer", reason="the command line needs lightbed[kit]")

from lightning.cli import run_app
from lightning.compiler import Hardware, load_model, load_or_compile, model_hash

RANDOM = np.random.default_rng(12)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Weights without and with biases, and samples, in the current folder."""
    monkeypatch.chdir(tmp_path)
    weights = {"w1": RANDOM.normal(0, 0.4, (12, 20)), "w2": RANDOM.normal(0, 0.4, (4, 12))}
    np.savez("plain.npz", **weights)
    np.savez("biased.npz", **weights, b1=RANDOM.normal(0, 0.4, 12))
    samples = RANDOM.integers(0, 256, (30, 20)).astype(np.uint8)
    np.save("samples.npy", samples)
    np.savez("samples.npz", x=samples, y=np.zeros(30, np.int64))
    return tmp_path


@pytest.fixture
def ran(capsys):
    def run(*words):
        code = run_app(words)
        return (code, *capsys.readouterr())

    return run


@pytest.fixture
def document(ran):
    def run(*words):
        code, out, _ = ran(*words, "--json")
        return code, json.loads(out)

    return run


def test_weights_without_biases_are_compiled_as_published(folder, ran):
    code, out, _ = ran("compile", "plain.npz")
    assert code == 0
    assert out.splitlines()[0].startswith("plain, scheme published, perfect scaling, sha256 ")
    assert "100.00 % of 288 multiply-accumulates by light" in out
    assert out.splitlines()[-1] == "94 cycles per image, written to plain.lng"
    assert load_model("plain.lng").scheme == "published"


@pytest.mark.slow
def test_biases_ask_for_samples_and_then_come_along(folder, ran):
    code, _, err = ran("compile", "biased.npz")
    assert code == 1
    assert "--samples" in err
    for samples in ("samples.npy", "samples.npz"):
        assert ran("compile", "biased.npz", "--samples", samples, "-o", "a.lng")[0] == 0
        model = load_model("a.lng")
        assert (model.scheme, model.origin["samples"]["images"]) == ("scaled", 30)


def test_a_data_set_without_a_training_part_is_named(folder, ran):
    many = RANDOM.integers(0, 256, (600, 20)).astype(np.uint8)
    (folder / "set").mkdir()
    images = bytes([0, 0, 8, 3, 0, 0, 2, 88, 0, 0, 0, 4, 0, 0, 0, 5]) + many.tobytes()
    (folder / "set" / "t10k-images-idx3-ubyte").write_bytes(images)
    (folder / "set" / "t10k-labels-idx1-ubyte").write_bytes(bytes([0, 0, 8, 1, 0, 0, 2, 88]) + bytes(600))
    code, _, err = ran("compile", "biased.npz", "--samples", "mnist:set", "-o", "a.lng")
    assert code == 0
    assert "warning: mnist:set has no training part; ranges are measured on 500 of its test images" in err
    assert load_model("a.lng").origin["samples"]["images"] == 500


def test_the_source_is_kept_by_name_and_hash(folder, ran):
    ran("compile", "plain.npz", "-o", "a.lng")
    source = load_model("a.lng").origin["source"]
    assert (source["file"], len(source["sha256"])) == ("plain.npz", 64)


def test_hardware_and_options_are_taken(folder, document):
    words = (
        "--samples",
        "samples.npy",
        "--scheme",
        "scaled",
        "--ranges",
        "entropy",
        "--per-tensor",
        "--wrap",
    )
    hardware = ("--wavelengths", "2", "--cores", "3", "--lanes", "8", "--skip-zeros")
    code, found = document("compile", "plain.npz", "-o", "a.lng", *words, *hardware)
    model = load_model("a.lng")
    assert (code, found["written"]) == (0, ["a.lng"])
    assert found["sha256"] == model_hash(model)
    assert model.hardware == Hardware(8, 2, 3, skip_zeros=True)
    assert model.wrap
    assert (model.origin["options"]["ranges"], model.origin["options"]["per_channel"]) == ("entropy", False)


@pytest.mark.slow
def test_the_noise_that_ranges_are_chosen_for_is_taken_and_kept(folder, ran):
    for words, sigma in ((("--sigma", "8"), 8.0), ((), 1.6569279459762971)):
        ran("compile", "biased.npz", "--samples", "samples.npy", "-o", "a.lng", *words)
        assert load_model("a.lng").origin["options"]["sigma"] == sigma


def test_preprocessing_is_stored(folder, ran):
    given = ("--scale", "0.1", "--mean", "0.5", "--deviation", "2")
    ran("compile", "biased.npz", "--samples", "samples.npy", "-o", "a.lng", *given)
    kept = load_model("a.lng").network.preprocessing
    assert (kept.scale, kept.mean, kept.deviation, kept.layout) == (0.1, (0.5,), (2.0,), "as-is")


def test_a_model_is_explained_line_by_line(folder, ran):
    ran("compile", "plain.npz")
    code, out, _ = ran("explain", "plain.lng")
    lines = [line.split() for line in out.splitlines()]
    assert code == 0
    assert ["fc1", "24", "10", "5", "16", "2", "57"] in lines
    assert ["all", "28", "20", "10", "32", "4", "94"] in lines
    assert "from plain.npz" in out


def test_explained_to_a_program(folder, document):
    document("compile", "plain.npz")
    code, found = document("explain", "plain.lng")
    assert (code, found["ok"], found["model"], found["cycles"]) == (0, True, "plain.lng", 94)
    assert [node["name"] for node in found["nodes"]] == ["fc1", "relu1", "fc2"]
    assert found["origin"]["source"]["file"] == "plain.npz"


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("compile", "none.npz"), "network", "there is no file"),
        (("compile", "plain.lng"), "config.out-of-range", "already compiled"),
        (("compile", "biased.npz", "--scheme", "published"), "compile", "Gemm fc1 has a bias"),
        (("compile", "plain.npz", "--scheme", "best"), "config.out-of-range", "'best' is not known"),
        (("compile", "biased.npz", "--samples", "none.npy"), "input", "there is no file none.npy"),
        (("compile", "biased.npz", "--samples", "plain.npz"), "input", "contains no samples"),
        (("compile", "biased.npz", "--samples", "nothing"), "dataset", "is not a known dataset"),
        (("compile", "plain.npz", "--mean", "a"), "config.out-of-range", "not a valid list of numbers"),
        (("compile", "plain.npz", "-o", "no/where.lng"), "model-file", "cannot be written"),
        (("explain", "none.lng"), "model-file", "cannot be read"),
        (("explain", "samples.npy"), "network", "neither .onnx nor .npz"),
    ],
)
def test_refusals_name_the_reason_and_the_hint(folder, document, words, code, says):
    status, found = document(*words)
    assert (status, found["error"]["code"]) == (1, code)
    assert says in found["error"]["message"]


def test_a_compiled_model_is_loaded_by_the_same_function(folder, ran):
    ran("compile", "plain.npz")
    assert model_hash(load_or_compile("plain.lng")) == model_hash(load_or_compile("plain.npz"))
