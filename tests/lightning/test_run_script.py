import sys

import pytest

from lightning import errors
from lightning.run_script import replace_qick_soc, run_script

qick = pytest.importorskip("qick", reason="runs QICK scripts: pip install 'lightbed[kit]'")


@pytest.fixture
def script(tmp_path):
    def write(text, name="script.py"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


TALK = """
from qick import QickSoc
from lightning import LightningControl, LightningConfig, LightningSignalProcessing
soc = QickSoc()
soccfg = soc
LightningConfig["dac_0"] = 100
LightningConfig["dac_1"] = 50
runtime = LightningControl(soccfg, LightningConfig)
waveform = runtime.acquire_decimated(soc)
sp = LightningSignalProcessing()
sp.plot_waveform(waveform)
print(sp.decode_adc_result)
"""


def test_the_talks_own_form(script, capsys):
    assert run_script(script(TALK), "sim://kit") == 0
    printed, reported = capsys.readouterr()
    assert abs(int(printed) - 100 * 50 / 255) <= 1
    assert "SIMULATED" in reported


def test_every_way_to_a_qicksoc_leads_to_the_device(script, kit, capsys):
    text = """
import qick
import qick.qick
from qick import *
from qick.qick import QickSoc as Deep
from qick.pyro import make_proxy
import qick.pyro
soc = QickSoc(bitfile="some.bit", force_init_clks=True)
proxy, soccfg = make_proxy("10.0.0.7", ns_port=9999, proxy_name="x")
again, _ = qick.pyro.make_proxy(ns_host="y")
assert soc is Deep() is qick.QickSoc() is qick.qick.QickSoc() is proxy is again
assert isinstance(soc, QickSoc) and isinstance(soc, qick.QickConfig)
assert isinstance(soccfg, qick.QickConfig) and soccfg is not soc
print(soc.identity)
"""
    assert run_script(script(text), kit) == 0
    assert capsys.readouterr().out == "sim-kit-0001\n"


def test_an_unmodified_program_of_qicks_own_classes(script, capsys):
    text = """
from qick import *
import numpy as np

class Loopback(AveragerProgram):
    def initialize(self):
        self.declare_gen(ch=0, nqz=1)
        self.declare_readout(ch=0, length=200, freq=100, gen_ch=0)
        self.set_pulse_registers(ch=0, style="const", freq=self.freq2reg(100, gen_ch=0, ro_ch=0), phase=0,
                                 gain=30000, length=400)
        self.synci(200)
    def body(self):
        self.measure(pulse_ch=0, adcs=[0], adc_trig_offset=250, wait=True, syncdelay=self.us2cycles(1))

soc = QickSoc()
program = Loopback(soc, {"reps": 20})
i, q = program.acquire(soc, progress=False)
print(np.hypot(i[0][0], q[0][0]) > 100)
"""
    assert run_script(script(text), "sim://loopback") == 0
    assert capsys.readouterr().out == "True\n"


def test_arguments_path_and_name_are_the_scripts(script, kit, capsys, tmp_path):
    (tmp_path / "beside.py").write_text("WORD = 'found'")
    path = script("import sys, beside; print(__name__, sys.argv[1:], beside.WORD, sys.path[0])")
    argv, search = list(sys.argv), list(sys.path)
    assert run_script(path, kit, ["a", "--b", "3"]) == 0
    assert capsys.readouterr().out == f"__main__ ['a', '--b', '3'] found {tmp_path.resolve()}\n"
    assert (sys.argv, sys.path) == (argv, search)
    sys.modules.pop("beside")


@pytest.mark.parametrize(
    ("end", "code", "reported"),
    [
        ("", 0, ""),
        ("raise SystemExit", 0, ""),
        ("import sys; sys.exit(7)", 7, ""),
        ("raise SystemExit('too cold')", 1, "too cold\n"),
        ("raise KeyboardInterrupt", 130, ""),
    ],
)
def test_the_exit_code_is_the_scripts(script, kit, capsys, end, code, reported):
    assert run_script(script(end), kit) == code
    assert capsys.readouterr().err == reported


def test_a_failing_script_shows_its_own_traceback(script, kit, capsys):
    path = script("def f():\n    return 1 / 0\n\nf()\n")
    assert run_script(path, kit) == 1
    reported = capsys.readouterr().err
    assert "ZeroDivisionError" in reported
    assert reported.count("File ") == 2
    assert "runpy" not in reported


def test_a_script_that_cannot_be_parsed_says_where(script, kit, capsys):
    assert run_script(script("def f(:\n"), kit) == 1
    assert "SyntaxError" in capsys.readouterr().err


def test_a_script_that_is_not_there_is_named(kit, tmp_path):
    with pytest.raises(errors.ScriptError, match="no script"):
        run_script(tmp_path / "none.py", kit)


def test_everything_is_put_back(kit):
    before = dict(vars(qick))
    modules = {name: sys.modules.get(name) for name in ("qick.qick", "qick.pyro")}
    with pytest.raises(RuntimeError, match="inside"), replace_qick_soc(kit):
        assert qick.QickSoc() is kit
        raise RuntimeError("inside")
    assert {name: sys.modules.get(name) for name in modules} == modules
    assert vars(qick).get("QickSoc") is before.get("QickSoc")
    assert vars(qick).get("qick") is before.get("qick")


def test_the_command_line_gives_the_scripts_exit_code(script, capsys):
    pytest.importorskip("typer", reason="the command line: pip install 'lightbed[kit]'")
    from lightning.cli import run_app

    path = script("import sys; from qick import QickSoc; QickSoc(); print(sys.argv[1:]); sys.exit(3)")
    assert run_app(["run", str(path), "--device", "sim://loopback", "x", "--json", "-v"]) == 3
    assert capsys.readouterr().out == "['x', '--json', '-v']\n"


def test_the_command_line_names_what_is_wrong(capsys, tmp_path):
    pytest.importorskip("typer", reason="the command line: pip install 'lightbed[kit]'")
    from lightning.cli import run_app

    assert run_app(["run", str(tmp_path / "none.py")]) == 1
    assert "there is no script" in capsys.readouterr().err
