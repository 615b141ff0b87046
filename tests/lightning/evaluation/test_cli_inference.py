"""`lightning infer`, `evaluate` and `sensitivity`: what they print, what they write, and how they refuse."""

import contextlib
import io
import json

import numpy as np
import pytest
from libraries import skip_without

skip_without("typer", reason="the command line needs lightbed[kit]")
skip_without("numba", reason="noise needs lightbed[inference]")

from lightning.cli import run_app


@pytest.fixture(autouse=True)
def _no_device_named(monkeypatch):
    monkeypatch.delenv("LIGHTBED_DEVICE", raising=False)


def ran(*words):
    """Return (exit code, standard output, standard error) of a command."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run_app([str(word) for word in words])
    return code, out.getvalue(), err.getvalue()


def document(*words):
    code, out, _ = ran(*words, "--json")
    return code, json.loads(out)


def refused(*words):
    code, found = document(*words)
    assert (code, found["ok"]) == (1, False)
    assert found["error"]["hint"]
    return found["error"]["code"], found["error"]["message"]


@pytest.fixture
def small(weak):
    """784 products would take a device seconds; this chain has 16."""
    path = weak("fc1")
    np.savez(path, w1=np.kron(np.eye(2), np.ones((1, 4))), w2=np.eye(2))
    return path


@pytest.fixture
def eight(tmp_path):
    x = np.uint8([[200] * 4 + [50] * 4, [40] * 4 + [220] * 4])
    np.savez(tmp_path / "eight.npz", x=x, y=[0, 1])
    np.save(tmp_path / "one.npy", x[1])
    return tmp_path / "eight.npz"


# -------------------------------------------------------------------------------------- evaluate


@pytest.mark.long
def test_evaluate_prints_accuracy_and_whose_model_it_is(digits_npz):
    code, out, _ = ran("evaluate", digits_npz, "digits")
    first, second, third = out.splitlines()
    assert code == 0
    assert third == "compiled for this run, raw inputs times 0.00392157"
    assert first.startswith("digits: 500 images; digits, scheme published, perfect scaling, ")
    assert second.startswith("exact: ")
    assert second.endswith("images/s  SIMULATED")


@pytest.mark.slow
def test_the_document_says_all_that_is_needed_to_have_it_again(digits_npz):
    words = ("evaluate", digits_npz, "digits", "--sigma", 6, "--seed", 3, "--seeds", 4)
    code, found = document(*words)
    assert (code, found["ok"], found["images"], found["seed"]) == (0, True, 500, 3)
    assert found["seeds"] == [3, 4, 5, 6]
    assert found["accuracy"] == pytest.approx(np.mean(found["accuracies"]), abs=1e-6)
    assert found["spread"] == pytest.approx(np.std(found["accuracies"], ddof=1), abs=1e-6)
    assert (found["fidelity"], found["noise"]["place"], found["noise"]["sigma"]) == (
        "noisy",
        "per-product",
        6,
    )
    assert found["images_per_s"] > 0
    assert len(found["model_hash"]) == 64
    assert (found["calibration"], found["device"], found["simulated"]) == (None, "model of light", True)
    assert found["version"]
    assert found["preprocessing"]["scale"] == 1 / 255
    assert set(found["data_origin"]) == {"digits", "scikit-learn"}
    again = document(*words)[1]
    assert again["accuracies"] == found["accuracies"]
    exact = document("evaluate", digits_npz, "digits")[1]
    assert exact["accuracy"] > found["accuracy"]
    assert (exact["noise"], exact["spread"], exact["model_hash"]) == (None, None, found["model_hash"])


def test_averaging_and_the_place_of_noise_matter(digits_npz):
    def accuracy(*options):
        return document("evaluate", digits_npz, "digits", "--sigma", 8, "--seeds", 2, *options)[1]["accuracy"]

    sparse = accuracy()
    assert accuracy("--average", 16) > sparse
    assert accuracy("--noise", "per-output") != sparse


@pytest.mark.slow
def test_the_table(digits_npz, monkeypatch):
    monkeypatch.setattr("lightning.cli.evaluate.TIMING_DURATION_S", 0.0)
    pytest.importorskip("onnxruntime", reason="the table compares with ONNX Runtime")
    words = ("evaluate", digits_npz, "digits", "--limit", 60, "--seeds", 2)
    code, out, _ = ran(*words, "--compare", "onnxruntime")
    assert code == 0
    names = [line.partition("  ")[0] for line in out.splitlines()]
    assert names[5:9] == ["float32, ONNX Runtime", "int8, ONNX Runtime", "photonic, exact", "photonic, noisy"]
    found = document(*words, "--compare", "onnxruntime")[1]
    assert [row["name"] for row in found["table"]] == names[5:9]
    assert found["accuracy"] == found["table"][2]["accuracy"]
    assert found["images"] == 60


@pytest.mark.slow
def test_the_table_needs_two_images_where_ranges_come_from_them(small, eight):
    pytest.importorskip("onnxruntime", reason="the table compares with ONNX Runtime")
    words = ("evaluate", small, eight, "--limit", 1, "--compare", "onnxruntime")
    assert refused(*words) == (
        "dataset",
        "eight.npz has no training part, and a single image cannot set its own ranges",
    )


def test_a_single_score_is_a_class_everywhere(tmp_path):
    """1 where it is above 0, in `infer` as in `evaluate` and in `energy --shot-limit`."""
    np.savez(tmp_path / "one.npz", w1=np.float32([[1, -1]]))
    x, y = np.uint8([[200, 10], [10, 200], [255, 0], [0, 255]]), [1, 0, 1, 0]
    np.savez(tmp_path / "data.npz", x=x, y=y)
    assert document("evaluate", tmp_path / "one.npz", tmp_path / "data.npz")[1]["accuracy"] == 1
    for row, wanted in zip(x, y, strict=True):
        np.save(tmp_path / "row.npy", row)
        assert document("infer", tmp_path / "one.npz", tmp_path / "row.npy")[1]["class"] == wanted
    found = document("energy", tmp_path / "one.npz", "--shot-limit", tmp_path / "data.npz")[1]
    assert found["shot_limit"]["exact"] == 1
    assert found["shot_limit"]["points"][-1]["accuracy"] == 1
    _, out, _ = ran("energy", tmp_path / "one.npz", "--shot-limit", tmp_path / "data.npz")
    reported = [line for line in out.splitlines() if "photons per product" in line]
    few = [float(line.split()[0]) < 10 for line in reported]
    assert [line.endswith("*") for line in reported] == few
    assert set(few) == {True, False}


def test_the_training_part_can_be_tested(digits_npz):
    assert document("evaluate", digits_npz, "digits", "--part", "train")[1]["images"] == 1297


@pytest.mark.slow
def test_the_device_is_named_with_its_calibration(small, eight):
    pytest.importorskip("qick", reason="the twin is a QickConfig: pip install 'lightbed[kit]'")
    code, found = document("evaluate", small, eight, "--fidelity", "device", "--average", 4)
    assert (code, found["accuracy"], found["images"]) == (0, 1, 2)
    assert (found["device"], found["simulated"]) == ("sim-kit-0001", True)
    assert found["calibration"].startswith("sim-kit-0001 ")
    noisy = document("evaluate", small, eight, "--calibrated")[1]
    assert (noisy["fidelity"], noisy["calibration"]) == ("noisy", found["calibration"])
    assert noisy["noise"]["sigma"] > 0


def test_the_datapath_counts_as_exact_does(small, eight):
    pytest.importorskip("lark", reason="the datapath is count-action text: pip install 'lightbed[fpga]'")
    exact = document("evaluate", small, eight)[1]
    found = document("evaluate", small, eight, "--fidelity", "datapath")[1]
    same = ("accuracy", "accuracies", "images", "cycles", "model_hash", "simulated")
    assert [found[key] for key in same] == [exact[key] for key in same]
    assert (found["fidelity"], found["device"]) == ("datapath", "fastsim://")
    _, out, _ = ran("evaluate", small, eight, "--fidelity", "datapath", "--limit", 1)
    assert out.splitlines()[1].startswith("datapath, fastsim://: ")


def test_a_device_that_the_environment_names_is_no_reason_to_refuse(small, eight, monkeypatch):
    """It is taken where a device is asked, and nowhere else."""
    monkeypatch.setenv("LIGHTBED_DEVICE", "nonsense")
    assert document("evaluate", small, eight)[1]["accuracy"] == 1
    assert refused("evaluate", small, eight, "--fidelity", "device")[0] == "address"
    assert refused("evaluate", small, eight, "--calibrated")[0] == "address"


def test_clipping_is_counted_from_how_many_and_warned_of(small, eight, tmp_path):
    data = np.load(eight)
    np.savez(tmp_path / "floats.npz", x=data["x"] * 3.0, y=data["y"])
    code, out, err = ran("evaluate", compiled_for_levels(small, tmp_path), tmp_path / "floats.npz")
    assert code == 0
    assert "clipped activations: 8 of 16" in out
    assert "warning: 50 % of all activations are clipped" in err
    np.savez(tmp_path / "dark.npz", x=data["x"] / 255, y=data["y"])
    code, found = document("evaluate", compiled_for_levels(small, tmp_path), tmp_path / "dark.npz")
    (reported,) = found["warnings"]
    assert reported.startswith(
        "dark.npz holds values up to 0.8627, and weak-fc1 was compiled for values up to 255."
    )
    np.save(tmp_path / "dark.npy", data["x"][0] / 255)
    assert document("infer", compiled_for_levels(small, tmp_path), tmp_path / "dark.npy")[1]["warnings"]
    assert document("evaluate", compiled_for_levels(small, tmp_path), eight)[1]["warnings"] == []


@pytest.mark.slow
def test_faults_of_the_published_artifact_are_chosen_by_name(small, eight, tmp_path):
    np.savez(small, w1=np.load(small)["w1"], w2=np.eye(2) / 4)
    model = compiled_for_levels(small, tmp_path)
    np.save(tmp_path / "one.npy", -np.load(eight)["x"][1].astype(np.float32))
    asked = ("infer", model, tmp_path / "one.npy")
    dark = document(*asked)[1]
    bright = document(*asked, "--fault", "signs-dropped")[1]
    assert (dark["scores"], dark["faults"]) == ([0, 0], [])
    assert (bright["class"], bright["faults"]) == (1, ["signs-dropped"])
    both = document(*asked, "--fault", "last-layer-normalised", "--fault", "signs-dropped")[1]
    emulator = document(*asked, "--fault", "emulator")[1]
    assert both["scores"] == emulator["scores"] != bright["scores"]
    assert 128 <= max(emulator["scores"]) <= 255
    assert "signs-dropped" in ran(*asked, "--fault", "signs-dropped")[1].splitlines()[0]
    scaled = tmp_path / "scaled.lng"
    np.save(tmp_path / "samples.npy", np.load(eight)["x"])
    assert (
        ran("compile", small, "-o", scaled, "--scheme", "scaled", "--samples", tmp_path / "samples.npy")[0]
        == 0
    )
    assert refused("evaluate", scaled, eight, "--fault", "emulator") == (
        "config",
        "faults are given, but the model has scheme scaled",
    )
    negative = tmp_path / "negative.npz"
    np.savez(negative, x=-np.load(eight)["x"].astype(np.float32), y=[0, 1])
    sound, faulty = (
        document("evaluate", model, negative, *more)[1] for more in ((), ("--fault", "emulator"))
    )
    assert (sound["accuracy"], faulty["accuracy"]) == (0.5, 1)
    assert faulty["faults"] == ["last-layer-normalised", "signs-dropped"]


def compiled_for_levels(weights, folder):
    path = folder / "small.lng"
    assert ran("compile", weights, "-o", path, "--scheme", "published")[0] == 0
    return path


@pytest.mark.parametrize(
    ("options", "code", "reported"),
    [
        (("--fidelity", "best"), "config.out-of-range", "'best'"),
        (("--noise", "per-image"), "config.out-of-range", "'per-image'"),
        (("--part", "all"), "config.out-of-range", "'all'"),
        (("--compare", "abacus"), "config.out-of-range", "'abacus'"),
        (("--fidelity", "exact", "--sigma", "1"), "config", "exact"),
        (("--average", "4"), "config", "has no noise, so averaging"),
        (("--calibrated", "--sigma", "1"), "config", "--calibrated"),
        (("--seeds", "3"), "config.out-of-range", "no seeds"),
        (("--seed", "4"), "config", "is deterministic"),
        (
            ("--seed", "4", "--fidelity", "datapath"),
            "config",
            "is deterministic",
        ),
        (("--device", "qick://192.0.2.1"), "config", "a device is given, but fidelity"),
        (
            ("--device", "qick://192.0.2.1", "--sigma", "1"),
            "config",
            "a device is given, but fidelity",
        ),
        (
            ("--device", "qick://192.0.2.1", "--fidelity", "datapath"),
            "config",
            "a device is given, but fidelity",
        ),
        (("--bus", "fastsim://"), "config", "a bus is given, but fidelity"),
        (
            ("--bus", "fastsim://", "--fidelity", "device"),
            "config",
            "a bus is given, but fidelity",
        ),
        (("--sigma", "-1"), "lightning.error", "--sigma"),
        (("--fault", "none"), "config.out-of-range", "'none'"),
        (("--fault", "emulator", "--compare", "onnxruntime"), "config", "faults"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options, code, reported, small, eight):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert run_app(["evaluate", str(small), str(eight), *options, "--json"]) == 1
    error = json.loads(out.getvalue())["error"]
    assert error["code"] == code
    assert reported in error["message"]


def test_files_that_are_not_there_are_refused(small, eight, tmp_path):
    assert refused("evaluate", tmp_path / "no.npz", eight)[0] == "network"
    assert refused("evaluate", tmp_path / "no.lng", eight)[0] == "model-file"
    assert refused("evaluate", small, tmp_path / "no.npz")[0] == "dataset"
    assert refused("evaluate", small, "mnist:nowhere") == ("dataset", "nowhere is not a folder")


def test_data_of_another_size_are_refused(digits_npz, eight):
    assert refused("evaluate", digits_npz, eight) == ("input", "an image has 8 values, but digits takes 64")


# ----------------------------------------------------------------------------------------- infer


def test_infer_answers_for_an_array(small, eight):
    code, out, _ = ran("infer", small, eight.with_name("one.npy"))
    lines = out.splitlines()
    assert (code, lines[0]) == (0, "class 1 (exact)  SIMULATED")
    assert [line.split()[0] for line in lines[1:]] == ["1", "0"]
    found = document("infer", small, eight.with_name("one.npy"), "--sigma", 20, "--key", 5)[1]
    assert (found["class"], found["key"], len(found["scores"])) == (1, 5, 2)
    other = document("infer", small, eight.with_name("one.npy"), "--sigma", 20, "--key", 6)[1]
    assert other["scores"] != found["scores"]


def test_infer_answers_as_evaluate_does_for_the_image_of_that_place(digits_npz, tmp_path):
    from lightning.compiler import load_or_compile
    from lightning.evaluation import load_dataset
    from lightning.execution import Noise, open_executor

    data = load_dataset("digits")
    np.save(tmp_path / "image.npy", data.x[17])
    found = document("infer", digits_npz, tmp_path / "image.npy", "--sigma", 8, "--seed", 2, "--key", 17)[1]
    executor = open_executor(load_or_compile(digits_npz), "noisy", noise=Noise(sigma=8.0), seed=2)
    assert found["scores"] == executor.run(data.x.reshape(500, 64)).scores[17].tolist()


def test_infer_reads_images(digits_npz, tmp_path):
    image = pytest.importorskip("PIL.Image", reason="pillow reads images")
    from lightning.evaluation import load_dataset

    data = load_dataset("digits")
    picture = image.fromarray(data.x[0])
    picture.save(tmp_path / "nought.png")
    picture.resize((32, 32), image.Resampling.NEAREST).save(tmp_path / "large.png")
    found = document("infer", digits_npz, tmp_path / "nought.png")[1]
    assert (found["class"], found["warnings"]) == (data.y[0], [])
    assert data.y[0] == 0
    picture.convert("RGB").save(tmp_path / "grey.png")
    assert document("infer", digits_npz, tmp_path / "grey.png")[1]["warnings"] == []
    image.merge("RGB", (picture, picture, picture.rotate(90))).save(tmp_path / "colours.png")
    assert document("infer", digits_npz, tmp_path / "colours.png")[1]["warnings"] == [
        "colours.png has colours, and digits takes grey levels: colours become grey"
    ]
    code, message = refused("infer", digits_npz, tmp_path / "large.png")
    assert (code, "32 x 32" in message) == ("input", True)
    assert document("infer", digits_npz, tmp_path / "large.png", "--resize")[1]["class"] == 0


def test_infer_needs_ranges_compiled_before(tmp_path, eight):
    np.savez(tmp_path / "biased.npz", w1=np.eye(8), b1=np.ones(8))
    assert refused("infer", tmp_path / "biased.npz", eight.with_name("one.npy"))[0] == "compile"


# ----------------------------------------------------------------------------------- sensitivity


@pytest.mark.slow
def test_sensitivity_names_the_weak_layer(weak, bright_blocks, tmp_path):
    pytest.importorskip("matplotlib", reason="plots are drawn by matplotlib")
    png = tmp_path / "layers.png"
    code, out, _ = ran("sensitivity", weak("fc2"), bright_blocks, "--sigma", 10, "--png", png)
    assert code == 0
    assert png.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    lines = {line.split()[0]: line.split() for line in out.splitlines()}
    assert float(lines["fc2"][3]) > 20 > float(lines["fc1"][3])
    assert "for a loss of at most 1 point: sigma up to " in out
    assert "or averaging of " in out
    found = document("sensitivity", weak("fc2"), bright_blocks, "--sigma", 10)[1]
    assert (found["exact"], found["allowed_loss"], found["simulated"]) == (1, 1, True)
    assert [layer["layer"] for layer in found["layers"]] == ["fc1", "fc2"]
    assert found["sigma"] == pytest.approx(10 * found["factor"], abs=1e-3)
    assert found["average"] == found["averages"][-1]["average"]
    assert all(each["loss"] > 1 for each in found["averages"][:-1])
    more = document("sensitivity", weak("fc2"), bright_blocks, "--sigma", 10, "--loss", 10)[1]
    assert more["sigma"] > found["sigma"]
    assert more["average"] < found["average"]


def test_sensitivity_refuses_what_is_no_noise(weak, bright_blocks):
    assert refused("sensitivity", weak("fc2"), bright_blocks, "--sigma", 0)[0] == "config.out-of-range"
    assert refused("sensitivity", weak("fc2"), bright_blocks, "--loss", 0)[0] == "config.out-of-range"


def test_a_plot_that_cannot_be_is_refused_before_the_work(weak, bright_blocks, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib", reason="plots are drawn by matplotlib")

    def never(*_):
        raise AssertionError("the work began")

    monkeypatch.setattr("lightning.evaluation.datasets.load_dataset", never)
    words = ("sensitivity", weak("fc2"), bright_blocks, "--png")
    assert refused(*words, tmp_path / "bad.xyz")[0] == "picture"
    assert refused(*words, tmp_path / "nowhere" / "a.png")[0] == "picture"


def test_a_network_that_light_has_no_part_in_has_no_sensitive_layer(bright_blocks):
    from lightning.compiler import CompiledModel
    from lightning.errors import OutOfRange
    from lightning.evaluation import load_dataset
    from lightning.evaluation.sensitivity import measure_sensitivity
    from lightning.execution import Noise
    from lightning.networks import Network, Node

    shapes = {"x": (64,), "y": (64,)}
    model = CompiledModel(Network("none", (Node("relu", "Relu", ("x",), "y"),), {}, "x", "y", shapes), {})
    with pytest.raises(OutOfRange, match="no layer of none runs on light"):
        measure_sensitivity(model, load_dataset(bright_blocks), Noise())
