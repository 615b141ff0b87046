"""The examples that train run as they stand, and leave files that the toolkit takes."""

import re
import runpy
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from libraries import skip_without

skip_without("torch", reason="the examples begin with pip install 'lightbed[inference,torch]'")
skip_without("numba", reason="as above")
skip_without("onnx", reason="as above")
skip_without("sklearn", reason="as above")

from lightning.compiler import load_model
from lightning.evaluation import evaluate, load_dataset
from lightning.execution import open_executor
from lightning.networks import load_network, preprocess, run_float

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture
def run(monkeypatch, capsys):
    """Return a function that runs an example as `python train.py ...` does, and returns its output."""

    def ran(name, *arguments):
        script = EXAMPLES / name / "train.py"
        monkeypatch.syspath_prepend(str(script.parent))
        monkeypatch.setattr(sys, "argv", [str(script), *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(script), run_name="__main__")
        sys.modules.pop("networks", None)
        assert ended.value.code == 0
        return capsys.readouterr().out

    return ran


@pytest.mark.slow
def test_digits_are_trained_compiled_and_written(run, tmp_path):
    picture = tmp_path / "curve.png"
    reported = run("digits", "--network", "mlp", "--epochs", 4, "--output", tmp_path, "--png", picture)
    digits = load_dataset("digits")
    model = load_model(tmp_path / "mlp.lng")
    exact = evaluate(open_executor(model, "exact"), digits).accuracy
    network = load_network(tmp_path / "mlp.onnx")
    scores = run_float(network, preprocess(network, digits.x))

    assert exact > 0.7
    assert f"as it was{100 * (scores.argmax(axis=1) == digits.y).mean():22.2f}{100 * exact:9.2f}" in reported
    assert network.preprocessing == model.network.preprocessing
    assert "fine-tuned, no noise" in reported
    header, first = reported.splitlines()[1:3]
    assert header.index("float32") + len("float32") == len("as it was") + first[9:].index(".") + 3
    assert reported.count("half of the digits are right at sigma") == 2
    assert load_model(tmp_path / "mlp-aware.lng").layers.keys() == model.layers.keys()
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.long
@pytest.mark.torch
def test_a_residual_network_of_the_example_runs_on_light_entirely(monkeypatch):
    """Batch normalisation folded, both ways round, and answers in integers close to the float ones."""
    monkeypatch.syspath_prepend(str(EXAMPLES / "digits"))
    import torch

    from lightning.compiler import Options, compile_network
    from lightning.networks import Preprocessing, from_torch

    torch.manual_seed(0)
    make = runpy.run_path(str(EXAMPLES / "digits" / "networks.py"))["ResNet8"]
    digits = load_dataset("digits").take_first(20)
    network = from_torch(make(), (1, 8, 8), Preprocessing(scale=1 / 255))
    model = compile_network(network, digits.train_x[:32], Options(sigma=0))
    wanted = run_float(network, preprocess(network, digits.x))
    found = open_executor(model, "exact").run(digits.x).scores

    assert {node.name for node in network.nodes if node.operation in {"Conv", "Gemm"}} == set(model.layers)
    assert len(model.layers) == 10
    spread = (wanted - wanted.mean(axis=0)).std()
    assert np.abs(found - wanted).max() < 0.5 * spread


def connection(generator):
    """Return a line of NSL-KDD whose byte counts say whether it is an attack."""
    attack = generator.random() < 0.5
    features = ["0"] * 41
    features[1:4] = [generator.choice(["tcp", "udp"]), generator.choice(["http", "ftp"]), "SF"]
    features[4] = str(generator.integers(1, 50) if attack else generator.integers(2000, 90000))
    return ",".join([*features, "neptune" if attack else "normal", "20"])


@pytest.mark.slow
def test_a_detector_is_trained_and_tested_on_the_file_of_tests(run, tmp_path):
    generator = np.random.default_rng(0)
    for name, lines in (("KDDTrain+_20Percent.txt", 600), ("KDDTest+.txt", 200)):
        (tmp_path / name).write_text("\n".join(connection(generator) for _ in range(lines)))
    model = tmp_path / "anomaly.lng"
    reported = run("anomaly", "--data", tmp_path, "--epochs", 20, "--output", model)

    assert "KDDTest+, 200 connections, 43 features:" in reported
    found = evaluate(open_executor(load_model(model), "exact"), load_dataset(f"nsl-kdd:{tmp_path}"))
    assert f"exact {100 * found.accuracy:.2f} %" in reported
    assert found.accuracy > 0.95


def test_a_plot_that_cannot_be_is_reported_before_training(monkeypatch, capsys):
    script = EXAMPLES / "digits" / "train.py"
    monkeypatch.syspath_prepend(str(script.parent))
    monkeypatch.setattr(sys, "argv", [str(script), "--png", "curve.xyz"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(script), run_name="__main__")
    sys.modules.pop("networks", None)
    assert ended.value.code == 2
    assert "has no known plot format" in capsys.readouterr().err


def test_data_that_are_not_there_are_reported_in_a_line(monkeypatch, capsys, tmp_path):
    script = EXAMPLES / "anomaly" / "train.py"
    monkeypatch.setattr(sys, "argv", [str(script), "--data", str(tmp_path / "nowhere")])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(script), run_name="__main__")
    assert ended.value.code == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("train.py: error: ")
    assert "nowhere" in last


@pytest.mark.slow
@pytest.mark.torch
def test_the_code_of_the_how_to_runs_one_block_after_the_other():
    """With a network of dense layers and a single epoch, so that it takes a moment."""
    import torch
    from torch import nn

    page = (EXAMPLES.parent / "docs" / "how-to" / "train-with-noise.md").read_text()
    blocks = re.findall(r"(?:^(?:    .*)?\n)+", page, re.MULTILINE)
    code = [textwrap.dedent(block) for block in blocks if "from lightning" in block]
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
    before = module[1].weight.detach().clone()
    known = {
        "module": module,
        "loss": nn.functional.cross_entropy,
        "optimiser": torch.optim.Adam(module.parameters()),
        "batches": [(torch.rand(4, 1, 8, 8), torch.arange(4))],
    }
    for block in code:
        exec(compile(block.replace("epochs=10", "epochs=1"), "train-with-noise.md", "exec"), known)

    assert len(code) == 2
    assert known["comparison"].epochs == 1
    assert not torch.equal(module[1].weight, before)
    assert "forward" not in vars(module[1])
