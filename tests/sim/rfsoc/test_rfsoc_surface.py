"""Addresses, configurations, knobs; and every name of QICK's `QickSoc` is simulated or refused by name."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import json
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from libraries import skip_without

from sim.twins.rfsoc import NotSimulated, ProgramError, connect
from sim.twins.rfsoc.address import AddressError, list_profiles, load_configuration, parse_address
from sim.twins.rfsoc.not_simulated import NotSimulatedAttribute
from sim.twins.rfsoc.soc import UNSIMULATED_ATTRIBUTES, UNSIMULATED_MEMBERS

skip_without("qick")

DOCS = Path(__file__).parents[3] / "docs" / "reference" / "rfsoc-twin.md"
OWN = {
    *("simulated", "identity", "knobs", "get_knob", "set_knob", "factory_calibration", "bench"),
    *("elapse", "pulse_start_pin", "autoproxy", "close"),
}


def qicksoc():
    """Return the class `QickSoc` as its source says; it cannot be imported without a board's libraries."""
    origin = importlib.util.find_spec("qick").origin
    tree = ast.parse((Path(origin).parent / "qick.py").read_text())
    return next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "QickSoc")


def methods():
    return {
        node.name: node
        for node in qicksoc().body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    }


def simulated_names():
    from sim.twins.rfsoc.soc import SimulatedSoc

    classes = [one for one in SimulatedSoc.__mro__ if one.__module__.startswith("sim.")]
    return {name for one in classes for name in vars(one) if not name.startswith("_")} - set(
        UNSIMULATED_MEMBERS
    )


def test_every_method_of_qicksoc_is_simulated_or_refused():
    assert set(methods()) - simulated_names() - set(UNSIMULATED_MEMBERS) == set()
    assert set(UNSIMULATED_MEMBERS) <= set(dir(connect("sim://loopback")))
    assert set(UNSIMULATED_MEMBERS) - set(methods()) - {"tproc"} <= UNSIMULATED_ATTRIBUTES | {"download"}
    assert simulated_names() - set(methods()) <= OWN


@pytest.mark.long
def test_simulated_methods_take_what_qicks_take():
    from sim.twins.rfsoc.soc import SimulatedSoc

    for name in (simulated_names() & set(methods())) - {"streamer"}:
        theirs = [argument.arg for argument in methods()[name].args.args]
        assert list(inspect.signature(getattr(SimulatedSoc, name)).parameters) == theirs, name


def test_what_is_lacking_is_refused_by_name(loopback):
    soc = loopback()
    for name in UNSIMULATED_MEMBERS:
        with pytest.raises(NotSimulated, match=rf"QickSoc\.{name} .* is not simulated"):
            getattr(soc, name)(0, nothing=1)
        assert hasattr(soc, name) == (name not in UNSIMULATED_ATTRIBUTES)
    assert getattr(soc, "tproc", None) is None
    with pytest.raises(AttributeError):
        soc.no_such_thing  # noqa: B018


@pytest.mark.parametrize("kind", [NotSimulated, NotSimulatedAttribute])
def test_a_refusal_survives_the_wire(kind):
    refusal = pickle.loads(pickle.dumps(kind("QickSoc.arm_mr", "do without")))
    assert type(refusal) is kind
    assert (refusal.feature, refusal.hint) == ("QickSoc.arm_mr", "do without")


def test_the_docs_name_what_is_simulated_and_what_is_not():
    text = DOCS.read_text(encoding="utf-8")
    for name in simulated_names() | set(UNSIMULATED_MEMBERS):
        assert f"`{name}`" in text, name
    from sim.twins.rfsoc.board import FAULTS

    for name in (*FAULTS, *list_profiles(), "adc_bits", "filter", "delay_ns", "noise_rms"):
        assert f"`{name}`" in text, name


def test_a_twin_is_a_configuration_that_survives_json(loopback):
    from qick import QickConfig

    soc = loopback()
    again = QickConfig(json.loads(soc.dump_cfg()))
    assert again.get_cfg() == soc.get_cfg()
    assert "axis_tproc64x32_x8" in soc.description()
    assert soc["sw_version"] == __import__("qick").get_version()


@pytest.mark.parametrize("profile", list_profiles())
def test_every_board_has_a_description(profile):
    from qick import QickConfig

    cfg = load_configuration(profile)
    text = QickConfig(cfg).description()
    assert cfg["board"] in text
    assert {tile["coupling"] for tile in cfg["rf"]["tiles"]["adc"].values()} <= {"AC", "DC"}


def test_the_kits_board_is_as_its_firmware_says():
    cfg = load_configuration("lightning-zcu111")
    assert {gen["fs"] for gen in cfg["gens"]} == {6144.0}
    assert [gen["type"] for gen in cfg["gens"]] == ["axis_signal_gen_v6"] * 7
    assert [(ro["fs"], ro["buf_maxlen"], ro["avg_maxlen"], ro["f_output"]) for ro in cfg["readouts"]] == [
        (3072.0, 1024, 16384, 384.0)
    ] * 2
    assert (cfg["refclk_freq"], cfg["tprocs"][0]["f_time"]) == (204.8, 384.0)


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("sim://moon", "not a valid twin; known: sim://kit and sim://loopback"),
        ("qick://kit", "not a valid twin"),
        ("sim://kit/deep", "not a valid twin"),
        ("sim://kit?seed", "options of"),
        ("sim://kit?profile=pdp11", "unknown board 'pdp11'; known"),
        ("sim://loopback?colour=red", "the loopback has no knob 'colour'"),
        ("sim://loopback?gain=loud", "must be a number, not"),
        ("sim://loopback?delay_ns=-1", r"must be 0 to 1e\+06, not"),
        ("sim://loopback?noise=some", "noise must be on or off, not"),
        ("sim://loopback?adc_bits=99", "adc_bits must be 4 to 16, not"),
        ("sim://loopback?filter=none", "filter must be one of fir, mean, not"),
        ("sim://loopback?seed=x", "must be an integer of at least 0, not"),
        ("sim://kit?seed=-1", "must be an integer of at least 0, not"),
        ("sim://kit?instruction_limit=0", "must be an integer of at least 1, not"),
        ("sim://kit?colour=red", "the kit has no knob 'colour'"),
    ],
)
def test_addresses_that_name_nothing_are_refused(address, said):
    with pytest.raises(AddressError, match=said):
        connect(address)


def test_an_address_is_taken_apart():
    where = parse_address("sim://loopback?profile=zcu216&delay_ns=35.5&gain=0.5")
    assert (where.plant, where.profile, where.options) == (
        "loopback",
        "zcu216",
        {"delay_ns": "35.5", "gain": "0.5"},
    )


def test_knobs_are_the_boards_and_the_plants(loopback):
    soc = loopback(adc_bits=16, filter="mean", gain_1_0=0.25)
    assert (soc.knobs["adc_bits"], soc.knobs["filter"], soc.get_knob("gain_1_0")) == (16, "mean", 0.25)
    soc.set_knob("noise", "off")
    assert soc.knobs["noise"] == "off"
    del soc.knobs["noise"], soc.knobs["filter"], soc.knobs["gain"]
    assert (soc.knobs["noise"], soc.knobs["filter"], soc.knobs["gain"]) == ("on", "mean", 0.5)
    assert len(soc.knobs) == len(list(soc.knobs))
    with pytest.raises(KeyError):
        soc.knobs["gain_9_9"]


def test_boards_have_converters_of_their_generation():
    assert connect("sim://loopback").knobs["adc_bits"] == 12
    assert connect("sim://loopback?profile=rfsoc4x2").knobs["adc_bits"] == 14


def test_twins_share_nothing(loopback):
    one, other = loopback(), loopback()
    one.knobs["gain"] = 0.1
    one["board"] = "mine"
    assert (other.knobs["gain"], other["board"]) == (0.5, "ZCU111")


def test_without_qick_the_cure_is_told(monkeypatch):
    monkeypatch.delitem(sys.modules, "sim.twins.rfsoc.soc", raising=False)
    monkeypatch.setitem(sys.modules, "qick", None)
    with pytest.raises(ModuleNotFoundError, match=r"install the extra \[qick\] of lightbed"):
        connect("sim://kit")


def test_a_loopback_has_neither_calibration_nor_bench(loopback):
    soc = loopback()
    assert (soc.factory_calibration(), soc.bench()) == (None, {})


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda soc: soc.set_nyquist(0, 3), "the Nyquist zone must be 1 or 2, not"),
        (lambda soc: soc.set_mixer_freq(0, 100.0), "has no mixer"),
        (lambda soc: soc.start_src("moon"), "'internal' or 'external'"),
        (lambda soc: soc.load_mem([1], mem_sel="pmem"), "a processor of version 1 has no accessible memory"),
    ],
)
def test_what_a_board_refuses_the_twin_refuses(loopback, call, error):
    with pytest.raises(RuntimeError, match=error):
        call(loopback())


def test_data_memory_is_open(loopback):
    soc = loopback()
    soc.load_mem([1, -2, 3], addr=7)
    assert soc.read_mem(3, addr=7).tolist() == [1, -2, 3]


@pytest.fixture
def long_program():
    """Load a program of some two thousand instructions into a board of either version, and start it."""
    from qick import QickProgram
    from qick.asm_v2 import QickProgramV2

    def started(address):
        soc = connect(address)
        program = (QickProgram if soc.TPROC_VERSION == 1 else QickProgramV2)(soc)
        for _ in range(2000):
            program.synci(1) if soc.TPROC_VERSION == 1 else program.nop()
        program.end()
        program.config_all(soc)
        soc.start_tproc()

    return started


@pytest.mark.slow
@pytest.mark.parametrize("board", ["sim://kit?", "sim://loopback?profile=zcu216&"])
def test_a_program_that_takes_too_long_is_told_with_a_cure_that_helps(long_program, board):
    with pytest.raises(ProgramError, match=r"not ended after 1000 instr.*sim://kit\?instruction_limit=10000"):
        long_program(f"{board}instruction_limit=1000")
    long_program(f"{board}instruction_limit=10000")


@pytest.mark.parametrize("board", ["sim://kit", "sim://loopback?profile=zcu216"])
def test_what_is_held_to_be_endless_without_machine_code_takes_seconds(board, monkeypatch):
    from qick import QickProgram
    from qick.asm_v2 import QickProgramV2

    from sim.twins.rfsoc import tproc_v1, tproc_v2
    from sim.twins.rfsoc.tproc_v1 import compiled as compiled_v1
    from sim.twins.rfsoc.tproc_v2 import compiled

    # Its first import decides once for all tests whether it passes arrays to machine code.
    importlib.import_module("sim.twins.rfsoc.tproc_v1.execution")
    assert (
        max(tproc_v1.tproc.UNCOMPILED_INSTRUCTION_LIMIT, tproc_v2.processor.UNCOMPILED_INSTRUCTION_LIMIT)
        <= 2_000_000
    )  # a few microseconds each
    monkeypatch.setattr(tproc_v1.tproc, "UNCOMPILED_INSTRUCTION_LIMIT", 3000)
    monkeypatch.setattr(tproc_v2.processor, "UNCOMPILED_INSTRUCTION_LIMIT", 3000)
    monkeypatch.setattr(compiled_v1, "IS_COMPILED", False)
    monkeypatch.setattr(compiled, "is_ready", lambda: False)
    monkeypatch.setattr(compiled, "get_executor", lambda: None)
    soc = connect(board)
    program = (QickProgram if soc.TPROC_VERSION == 1 else QickProgramV2)(soc)
    program.label("AGAIN")
    program.condj(0, 0, "==", 0, "AGAIN") if soc.TPROC_VERSION == 1 else (
        program.nop(),
        program.jump("AGAIN"),
    )
    program.end()
    program.config_all(soc)
    with pytest.raises(ProgramError, match="not ended after 3000 instructions"):
        soc.start_tproc()


def test_version_2_has_two_counters(loopback):
    soc = loopback(profile="zcu216")
    assert [soc.get_tproc_counter(addr) for addr in (1, 2)] == [0, 0]
    for addr in (0, 3):
        with pytest.raises(KeyError):
            soc.get_tproc_counter(addr)


@pytest.mark.socket
def test_a_twin_that_is_closed_leaves_no_thread(programs):
    def ours():
        return {
            one
            for one in threading.enumerate()
            if "bench" in one.name or type(one).__name__ == "ReaderThread"
        }

    before = ours()
    with connect("sim://kit?noise=off") as soc:
        programs.Averager(soc, {"reps": 50}).acquire(soc, progress=False)
        soc.bench()
        assert len(ours() - before) == 2
    assert ours() - before == set()
    soc.close()
    programs.Averager(soc, {"reps": 50}).acquire(soc, progress=False)
    soc.close()


def test_a_dropped_laser_is_a_fault_of_the_kit_alone():
    soc = connect("sim://kit?fault=laser_dropped")
    assert (soc.knobs["fault"], soc.knobs["laser_dropped"]) == ("laser_dropped", True)
    soc.set_knob("fault", "wrong_clock")
    assert (soc.knobs["fault"], soc.knobs["laser_dropped"]) == ("wrong_clock", False)
    soc.knobs["fault"] = "laser_dropped"
    del soc.knobs["fault"]
    assert soc.knobs["laser_dropped"]  # it was made so
    soc.knobs["fault"] = "none"
    soc.knobs["laser_dropped"] = "on"
    soc.knobs["fault"] = "overrun"  # another fault does not touch the knob
    assert soc.knobs["laser_dropped"]
    with pytest.raises(AddressError, match="unknown fault 'laser_dropped'; known"):
        connect("sim://loopback?fault=laser_dropped")


def test_there_is_one_of_each_formula():
    """The twin does not repeat a formula that a model has."""
    from sim.models.photonics.fibre import compute_kernel_taps
    from sim.twins.rfsoc import address, assembly, loopback
    from sim.twins.rfsoc.kit import plant
    from sim.twins.rfsoc.signals import conversion

    assert loopback.make_interpolation_taps(0.3).tolist() == compute_kernel_taps("sinc", 0.3).tolist()
    assert not hasattr(loopback, "BETA")
    assert conversion.draw_correlated_normals.__module__ == "sim.models.photonics.noise"
    assert assembly.parse_integer is plant.parse_integer is address.parse_integer


@pytest.mark.process
def test_the_conversion_works_where_machine_code_cannot_be_kept():
    pytest.importorskip("numba", reason="without it nothing is compiled")
    program = (
        "from numba.core import caching; "
        "getattr(caching, 'CacheImpl', None) and setattr(caching.CacheImpl, '_locator_classes', []); "
        "getattr(caching, '_CacheImpl', None) and setattr(caching._CacheImpl, '_locator_classes', []); "
        "import sim.twins.rfsoc.signals.conversion_compiled as made, sim.twins.rfsoc.tproc_v2.compiled as machine; "
        "assert machine.get_executor() is not None; print(made._decimate)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "CPUDispatcher" in done.stdout, done.stderr
