"""The scripts of `examples/scripts` on a modelled lab: each is short, imports only `testbed`, and does what it says."""

from __future__ import annotations

import ast
import html
import json
import re
import runpy
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from libraries import skip_without

skip_without("asyncssh")
skip_without("fastapi")
skip_without("httpx")
skip_without("sqlalchemy")

from testbed import open_lab

SCRIPTS = Path(__file__).resolve().parents[2] / "examples" / "scripts"
LINES = {
    "patch_for_a_job.py vgg16": r"48 circuits, epoch \d+, verified: True",
    "sweep_demands.py": r"12:64e6 4:64e6: epoch \d+, .* rings?, \d+ Mbit/s",
    "compare_topologies.py": r"one-way: four rings, 4 MiB, \d+ Mbit/s",
    "undo_if_slower.py": r"\d+ Mbit/s before, \d+ after",
    "log_light.py light.csv": r"96 readings; 0 findings",
    "compare_switches.py": r"ocs1: 48 circuits, mean 0\.\d\d dB, worst 0\.\d\d dB",
    "repair_a_cut.py": r"nothing to repair",
    "check_paths.py": r"\d+ hosts over 1 link",
    "drain_host.py c": r"44 circuits without c",
    "who_changed_what.py": r"\d+: .* apply by .*: ocs1",
    "finish_operation.py": r"nothing is unfinished",
    "reserve.py ann 5": r"ann sets LIGHTBED_LEASE=\S+, and ends it with: testbed lease release",
}
"""Scripts with their arguments after LAB, and a line that each prints."""
SLOW = ("sweep_demands.py", "compare_topologies.py", "check_paths.py")
"""Scripts that take seconds. Other tests send their commands."""


def test_every_script_is_run_and_in_the_table():
    names = {path.name for path in SCRIPTS.glob("*.py")}
    table = (SCRIPTS / "README.md").read_text(encoding="utf-8")
    assert {command.split()[0] for command in LINES} == names
    assert set(re.findall(r"\| `(\w+\.py)", table)) == names
    assert len(names) >= 12


@pytest.mark.parametrize("script", sorted(SCRIPTS.glob("*.py")), ids=lambda path: path.stem)
def test_a_script_is_short_and_imports_nothing_below_testbed(script):
    text = script.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 25
    modules = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules.add(node.module)
    assert modules - set(sys.stdlib_module_names) == {"testbed"}


@pytest.fixture(scope="module")
def runs_dir(tmp_path_factory):
    """Return the folder of results of all scripts, so that each finds the epochs of those before it."""
    return tmp_path_factory.mktemp("scripts") / "runs"


def run_script(name):
    """Run a script in this process, and return its exit code."""
    try:
        runpy.run_path(str(SCRIPTS / name), run_name="__main__")
    except SystemExit as ended:
        return ended.code
    return 0


@pytest.mark.parametrize(
    "command",
    [pytest.param(each, marks=pytest.mark.long if each in SLOW else ()) for each in LINES],
    ids=lambda command: command.partition(".")[0],
)
def test_a_script_does_what_it_says(up, runs_dir, tmp_path, monkeypatch, capsys, command):
    name, *arguments = command.split()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LIGHTBED_RUNS", str(runs_dir))
    monkeypatch.setattr(sys, "argv", [name, str(up[1]), *arguments])
    ended = run_script(name)
    assert not ended or name == "patch_for_a_job.py", "no pairs are pinged on modelled hosts"
    printed = capsys.readouterr().out
    assert re.search(LINES[command], printed), printed
    with open_lab(up[1], hosts="model", runs_dir=runs_dir) as lab:
        for lease in lab.command("lease list").leases:
            if lease.state == "granted":
                assert name in ("drain_host.py", "reserve.py")
                lab.command("lease release", lease.id)


@pytest.mark.parametrize(
    "name",
    [
        "who_changed_what.py",
        *(
            pytest.param(name, marks=pytest.mark.long)
            for name in ("compare_topologies.py", "check_paths.py", "log_light.py")
        ),
    ],
)
def test_a_script_works_through_a_service(up, running, tmp_path, monkeypatch, capsys, name):
    (command,) = [each for each in LINES if each.startswith(name)]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LIGHTBED_TOKEN", running.token("operator"))
    url = f"{running.url}/{up[0].lab.name}"
    with open_lab(url, hosts="model") as lab:
        lab.apply(method="geometric")
    monkeypatch.setattr(sys, "argv", [name, url, *command.split()[1:]])
    assert not run_script(name)
    assert re.search(LINES[command], capsys.readouterr().out)


def test_a_cut_fibre_is_repaired(up, runs_dir, ask_up, monkeypatch, capsys):
    with open_lab(up[1], hosts="model", runs_dir=runs_dir) as lab:
        lab.apply(method="geometric")
    monkeypatch.setenv("LIGHTBED_RUNS", str(runs_dir))
    monkeypatch.setattr(sys, "argv", ["repair_a_cut.py", str(up[1])])
    ask_up("cut", fibre="a/nic1:transmit")
    try:
        runpy.run_path(str(SCRIPTS / "repair_a_cut.py"), run_name="__main__")
    finally:
        ask_up("uncut", fibre="a/nic1:transmit")
    printed = capsys.readouterr().out
    assert "lost: the transmit fibre of a/nic1, for a/nic1 -> b/nic1" in printed
    assert "repaired, verified: True" in printed


@pytest.fixture
def ask_up(up):
    """Return a function that sends a request to the plant of the lab that is up."""
    from testbed.lab.control import send_request

    return lambda verb, **details: send_request(up[0].control_addresses["plant"], {"do": verb, **details})


def test_the_notebook_runs_and_its_results_draw_themselves(up, runs_dir, monkeypatch, capsys):
    notebook = json.loads((SCRIPTS / "lab.ipynb").read_text(encoding="utf-8"))
    monkeypatch.setenv("LIGHTBED_RUNS", str(runs_dir))
    names, drawings = {}, []
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        text = "".join(cell["source"]).replace("../../labs/testbed12.yaml", str(up[1]))
        *body, last = ast.parse(text).body
        exec(compile(ast.Module(body, []), "cell", "exec"), names)
        if isinstance(last, ast.Expr):
            shown = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
            if hasattr(shown, "_repr_html_"):
                drawings.append(html.unescape(shown._repr_html_()))
        else:
            exec(compile(ast.Module([last], []), "cell", "exec"), names)

    assert re.search(r"four rings: \d+ Mbit/s", capsys.readouterr().out)
    plan, applied, proof, measured = drawings
    assert "stride ±5: 12 two-way links" in plan
    assert "SIMULATED" in applied
    assert "pairs_reached" in proof
    assert "message size (logarithmic)" in measured
    for drawing in drawings:
        ET.fromstring(f"<page>{re.search(r'srcdoc=.(.*). style=', drawing, re.DOTALL)[1]}</page>")
