"""The examples for the kit: notebooks run to their end, and the talk's script gives its product."""

import base64
import os
import sys
from pathlib import Path

import pytest
from libraries import skip_without

skip_without("qick", reason="the examples run on the twin: pip install 'lightbed[kit]'")

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples" / "lightning"
PICTURES = {"calibration_and_accuracy.ipynb": 3, "first_product.ipynb": 2}
"""Cells of each notebook that show one."""


@pytest.fixture
def kernel_environment(tmp_path, monkeypatch):
    """Return the kernel of the running Python, which sees our packages and nobody's calibrations."""
    search = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    for name, value in {
        "PYTHONPATH": search,
        "LIGHTBED_CALIBRATIONS": str(tmp_path / "calibrations"),
        "JUPYTER_PATH": str(Path(sys.prefix) / "share" / "jupyter"),
        "IPYTHONDIR": str(tmp_path / "ipython"),
        "JUPYTER_PLATFORM_DIRS": "1",
    }.items():
        monkeypatch.setenv(name, value)
    return tmp_path


def notebook(name):
    nbformat = pytest.importorskip("nbformat", reason="of the development dependencies")
    return nbformat.read(EXAMPLES / name, as_version=4)


def executed(name, folder):
    nbclient = pytest.importorskip("nbclient", reason="of the development dependencies")
    pytest.importorskip("ipykernel", reason="of the development dependencies")
    read = notebook(name)
    resources = {"metadata": {"path": str(folder)}}
    nbclient.NotebookClient(read, timeout=100, kernel_name="python3", resources=resources).execute()
    return read


@pytest.mark.socket
@pytest.mark.process
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Jupyter's own, about its own folders
@pytest.mark.long
@pytest.mark.parametrize("name", ["first_product.ipynb", "calibration_and_accuracy.ipynb"])
def test_a_notebook_runs_to_its_end_and_shows_its_plots(name, kernel_environment):
    pytest.importorskip("matplotlib", reason="the notebooks draw: pip install 'lightbed[kit]'")
    outputs = [
        output for cell in executed(name, kernel_environment).cells for output in cell.get("outputs", [])
    ]
    pictures = [output["data"]["image/png"] for output in outputs if "image/png" in output.get("data", {})]
    assert len(pictures) == PICTURES[name]
    assert all(base64.b64decode(each)[:4] == b"\x89PNG" for each in pictures)
    reported = "".join(output.get("text", "") for output in outputs)
    assert "SIMULATED" in reported


@pytest.mark.parametrize("name", sorted(PICTURES))
def test_a_notebook_is_kept_without_what_it_printed(name):
    cells = [cell for cell in notebook(name).cells if cell.cell_type == "code"]
    assert len(cells) >= 8
    assert all(cell.outputs == [] and cell.execution_count is None for cell in cells)


def test_the_notebooks_are_these():
    assert {path.name for path in EXAMPLES.glob("*.ipynb")} == set(PICTURES)


def test_the_talks_own_script_gives_its_product(capfd):
    pytest.importorskip("typer", reason="the command line needs lightbed[kit]")
    from lightning.cli import run_app

    assert run_app(["run", str(EXAMPLES / "talk.py"), "--device", "sim://kit"]) == 0
    assert capfd.readouterr().out == "20\n"
