"""The arrows between the rooms hold, and the contracts that say so can fail."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from needs import needs

ROOT = Path(__file__).parent.parent
PACKAGES = ("fpga", "lightbed", "lightning", "ocs_drivers", "sim", "testbed")

# One import that must not be, for each contract of pyproject.toml: (contract, file, line).
VIOLATIONS = [
    (
        "no room imports one that imports it, at any depth",
        "lightning/kit/calibration/noise.py",
        "import lightning.kit.calibration.measurement.steps",
    ),
    (
        "lightbed, the ground of all, imports nothing of ours",
        "lightbed/errors.py",
        "import ocs_drivers.errors",
    ),
    ("ocs_drivers imports lightbed only", "ocs_drivers/model.py", "import testbed.errors"),
    (
        "inside ocs_drivers: vendors over engine and protocols over transports",
        "ocs_drivers/engine/planning.py",
        "import ocs_drivers.vendors.polatis.readings",
    ),
    (
        "inside protocols and transports of ocs_drivers: sessions over codecs",
        "ocs_drivers/protocols/tl1.py",
        "import ocs_drivers.protocols.tl1_session",
    ),
    (
        "drivers of vendors know nothing of each other",
        "ocs_drivers/vendors/mosw.py",
        "import ocs_drivers.vendors.dicon",
    ),
    ("fpga imports lightbed only", "fpga/__init__.py", "import sim.models"),
    (
        "inside fpga: drivers over buses over registers over hardware over the language",
        "fpga/registers/model.py",
        "import fpga.bus.protocol",
    ),
    (
        "inside fpga.count_action: a room imports those below it",
        "fpga/count_action/language/syntax.py",
        "import fpga.count_action.elaboration.flat",
    ),
    ("sim.models imports lightbed only", "sim/models/__init__.py", "import fpga"),
    ("inside sim: lab over twins over models", "sim/models/__init__.py", "import sim.twins"),
    (
        "inside sim.models.network: results over execution over engine, allreduce and fabrics",
        "sim/models/network/engine/program.py",
        "import sim.models.network.execution.flows",
    ),
    (
        "inside sim.models.contention: simulation over engine and jobs",
        "sim/models/contention/job.py",
        "import sim.models.contention.simulation",
    ),
    (
        "inside sim.twins: devices over frontends over switches over the wire",
        "sim/twins/wire/line.py",
        "import sim.twins.switch.device",
    ),
    (
        "families of switch twins know nothing of each other",
        "sim/twins/families/calient/circuits.py",
        "import sim.twins.families.polatis",
    ),
    (
        "inside sim.twins.rfsoc: the SoC over the board over its signals",
        "sim/twins/rfsoc/signals/waves.py",
        "import sim.twins.rfsoc.board",
    ),
    (
        "simulators share no codec with drivers, and know no orchestrator",
        "sim/twins/__init__.py",
        "from ocs_drivers import model",
    ),
    (
        "nobody imports sim.twins or sim.lab: they are processes",
        "testbed/lab/model.py",
        "import sim.lab",
    ),
    ("lightning imports fpga and sim.models only", "lightning/__init__.py", "import testbed.errors"),
    (
        "inside lightning: a room imports those below it",
        "lightning/networks/network.py",
        "import lightning.compiler.model",
    ),
    (
        "inside lightning.kit: faces over calibration over devices over settings",
        "lightning/kit/devices/guard.py",
        "import lightning.kit.calibration.store",
    ),
    ("testbed knows neither inference nor modules", "testbed/measure/model.py", "import lightning"),
    (
        "inside testbed: cli over measure and offload over operate over lab over design over errors",
        "testbed/design/model.py",
        "import testbed.lab.model",
    ),
    (
        "inside testbed.design: a room imports those below it",
        "testbed/design/topology/strides.py",
        "import testbed.design.search.cost",
    ),
    (
        "inside testbed.design.workloads: models at the bottom, whole iterations at the top",
        "testbed/design/workloads/model.py",
        "import testbed.design.workloads.iteration.totals",
    ),
    (
        "inside testbed.lab: the model at the bottom, the check of a machine at the top",
        "testbed/lab/hosts/fleet.py",
        "import testbed.lab.simulated.lifecycle",
    ),
    (
        "inside testbed.operate: plan under journal, light and apply, repair at the top",
        "testbed/operate/journal.py",
        "import testbed.operate.session",
    ),
    (
        "inside testbed.storage: tables and addresses at the bottom, backups at the top",
        "testbed/storage/schema.py",
        "import testbed.storage.backup",
    ),
    (
        "inside testbed.leases: rules know nothing of the database, the fence stands over all",
        "testbed/leases/rules.py",
        "import testbed.leases.store",
    ),
    (
        "inside testbed.measure: results at the bottom, whole jobs at the top",
        "testbed/measure/results/run.py",
        "import testbed.measure.report.page",
    ),
    (
        "inside testbed.offload: the policy at the bottom, sessions at the top",
        "testbed/offload/policy.py",
        "import testbed.offload.feed",
    ),
    (
        "inside testbed.service: tables at the bottom, the process at the top",
        "testbed/service/problems.py",
        "import testbed.service.server",
    ),
    ("testbed.design drives no device", "testbed/design/model.py", "import ocs_drivers.model"),
    ("only testbed.design asks the models", "testbed/operate/model.py", "import sim.models"),
    (
        "testbed.node imports nothing of ours: it is copied to the hosts",
        "testbed/node/__init__.py",
        "from testbed import errors",
    ),
]


def contracts() -> list[str]:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return [contract["name"] for contract in config["tool"]["importlinter"]["contracts"]]


def broken_contracts(tree: Path) -> dict[str, str]:
    """Return what import-linter says of each contract that is broken in a copy of the packages, by its name."""
    command = [
        sys.executable,
        "-c",
        "import sys; from importlinter.cli import lint_imports_command as main; main()",
    ]
    result = subprocess.run(
        [*command, "--no-cache"],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert all(f"{name} " in result.stdout for name in contracts()), result.stdout + result.stderr
    _, _, explained = result.stdout.partition("Broken contracts\n")
    parts = re.split(r"^(.+)\n-+\n", explained, flags=re.MULTILINE)
    found = dict(zip(parts[1::2], parts[2::2], strict=True))
    assert set(found) == {name for name in contracts() if f"{name} BROKEN" in result.stdout}
    return found


def copy_packages(folder: Path) -> Path:
    """Return a copy of the packages, to break."""
    pytest.importorskip("importlinter")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


@pytest.fixture(scope="module")
@needs("process")
def broken(tmp_path_factory):
    """Return contracts broken in a tree with every violation at once, also where the import hides in a function."""
    tree = copy_packages(tmp_path_factory.mktemp("violations"))
    for _, path, line in VIOLATIONS:
        with (tree / path).open("a") as file:
            file.write(f"\n\ndef hidden():\n    {line}\n")
    return broken_contracts(tree)


def test_every_contract_has_a_violation_to_prove_it():
    assert [name for name, _, _ in VIOLATIONS] == contracts()


@pytest.mark.long
@pytest.mark.process
def test_the_arrows_hold(tmp_path):
    assert broken_contracts(copy_packages(tmp_path)) == {}


@pytest.mark.long
@pytest.mark.parametrize(("name", "path", "line"), VIOLATIONS)
def test_a_violation_is_caught(broken, name, path, line):
    """By the contract that is about it, at the import that was added."""
    importer = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    words = line.replace(" import ", ".").split()[1] if line.startswith("from") else line.split()[1]
    import_line = rf"^- +{re.escape(importer)} -> {re.escape(words)}\b"
    circle = rf"^No cycles are allowed in {re.escape(importer.rpartition('.')[0])}\."
    assert re.search(f"{import_line}|{circle}", broken[name], re.MULTILINE)


# ------------------------------------------------------------------------------ foreign libraries


def imported_libraries(path: Path) -> set[str]:
    """Top-level names a module imports, anywhere in it, without standard library and our own rooms."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.add(node.module or "")
    tops = {name.partition(".")[0] for name in names}
    return tops - set(sys.stdlib_module_names) - set(PACKAGES)


WIRES = {
    "lightbed/command_group.py": {"typer"},
    "lightbed/completion.py": {"typer"},
    "lightbed/compiled.py": {"numba"},
    "lightbed/http_server.py": {"uvicorn"},
    "lightbed/pytest_entry.py": {"pytest"},
    "ocs_drivers/protocols/http.py": {"h11"},
    "ocs_drivers/transports/serial_port.py": {"serial"},
    "ocs_drivers/transports/ssh.py": {"asyncssh"},
    "ocs_drivers/transports/visa.py": {"pyvisa"},
    "sim/models/network/results/timeline.py": {"matplotlib"},
    "sim/models/network/results/traces.py": {"pyarrow"},
    "sim/twins/board/device.py": {"pynq"},
    "sim/twins/board/server.py": {"pynq"},
    "sim/twins/rfsoc/server.py": {"Pyro4", "qick"},
    "sim/twins/rfsoc/soc.py": {"qick"},
    "sim/twins/frontends/http_server.py": {"h11"},
    "sim/twins/wire/ssh_server.py": {"asyncssh"},
    "testbed/design/evaluation/comparison.py": {"matplotlib"},
    "testbed/design/circuits/shots.py": {"scipy"},
    "testbed/design/circuits/wavelengths.py": {"scipy"},
    "testbed/design/search/bound.py": {"scipy"},
    "testbed/design/search/worker_pool.py": {"distributed"},
    "testbed/design/workloads/imports/onnx_model.py": {"onnx"},
    "testbed/design/workloads/imports/torch_module.py": {"torch"},
    "testbed/design/sharing/pictures.py": {"matplotlib"},
    "testbed/design/workloads/iteration/totals.py": {"matplotlib"},
    "testbed/design/reproductions/drawing.py": {"matplotlib"},
}
"""The modules that talk to the world through a library that is an extra; everything else does without."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("room", "allowed"),
    [
        ("lightbed", set()),
        ("sim/models", {"numpy"}),
        ("sim/twins", {"numpy"}),
        ("testbed/design", {"numpy"}),
        (
            "testbed/node",
            {"torch", *(path.stem for path in (ROOT / "testbed/node").glob("*.py"))},
        ),  # beside it
        ("ocs_drivers", {"numpy"}),
        ("ocs_drivers/testing", {"pytest"}),  # the suite we ship
    ],
)
def test_core_rooms_need_only_numpy(room, allowed):
    paths = [
        path
        for path in sorted((ROOT / room).rglob("*.py"))
        if path.parts[-2] != "testing" or "testing" in room
    ]
    assert paths
    named = {str(path.relative_to(ROOT)): imported_libraries(path) - allowed for path in paths}
    foreign = {path: names for path, names in named.items() if names}
    assert foreign == {path: names for path, names in WIRES.items() if path.startswith(f"{room}/")}


@pytest.mark.long
@pytest.mark.process
def test_core_rooms_import_without_any_extra():
    """On a machine with numpy alone, every core room but the VISA transport and the contract suite imports."""
    modules = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for room in ("ocs_drivers", "sim/models", "sim/twins", "testbed/design")
        for path in sorted((ROOT / room).rglob("*.py"))
        if path.name != "__main__.py" and path.parts[-2] != "testing"
        if not imported_libraries(path) - {"numpy"}
    ]
    program = """
import importlib, sys
class OnlyNumpy:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if path is None and top in FORBIDDEN:
            raise ModuleNotFoundError(f"{name} is an extra", name=name)
FORBIDDEN = {"pyvisa", "pyvisa_py", "serial", "pydantic", "yaml", "typer", "rich", "asyncssh", "h11", "anyio",
    "sqlalchemy", "pyarrow", "jsonschema", "networkx", "scipy", "matplotlib", "torch", "pytest"}
sys.meta_path.insert(0, OnlyNumpy())
for name in sys.argv[1:]:
    importlib.import_module(name)
print(len(sys.argv) - 1)
"""
    result = subprocess.run(
        [sys.executable, "-c", program, *modules], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.stderr == ""
    assert int(result.stdout) == len(modules) > 0
