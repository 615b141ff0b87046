"""The scripts for Vivado, as far as they can be checked without it: they are Tcl, run through with Vivado's
commands replaced by recorders, and name files that are there."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from needs import needs

from fpga.registers.build import build_files, read_board_files, write_files

RECORDER = """\
# Every command that Tcl does not know is Vivado's: it is written down, and answers with its own name.
set record [open [lindex $argv 0] w]
proc unknown {args} {
    puts $::record $args
    return [lindex $args 0]
}
proc launch_runs {args} {puts $::record "launch_runs $args"}
rename file tcl_file
proc file {what args} {
    # Results of runs that did not happen.
    if {$what eq "copy"} {puts $::record "copy $args"} else {tcl_file $what {*}$args}
}
proc glob {args} {return [lindex $args end]}
set script [lindex $argv 1]
set argv [lrange $argv 2 end]
info script $script
source $script
close $record
"""


@pytest.fixture(scope="module")
@needs("process")
def built(demo, tmp_path_factory):
    folder = tmp_path_factory.mktemp("board")
    write_files({**build_files(demo), **read_board_files("zcu111")}, folder)
    return folder


def recorded(built, tmp_path, script, *arguments):
    tclsh = shutil.which("tclsh")
    if tclsh is None:
        pytest.skip("needs tclsh: apt install tcl")
    (tmp_path / "recorder.tcl").write_text(RECORDER)
    done = subprocess.run(
        [tclsh, tmp_path / "recorder.tcl", tmp_path / "record", built / script, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr
    return (tmp_path / "record").read_text()


@pytest.mark.parametrize("name", sorted(read_board_files("zcu111")))
def test_braces_and_brackets_balance(name):
    """Without a Tcl at hand this is what can be said."""
    text = re.sub(r"^\s*#.*$", "", read_board_files("zcu111")[name], flags=re.MULTILINE)
    text = re.sub(r"\\.", "", text)
    for opening, closing in ("{}", "[]"):
        assert text.count(opening) == text.count(closing)
    assert text.count('"') % 2 == 0


@pytest.mark.parametrize("name", sorted(read_board_files("zcu111")))
def test_says_that_nobody_has_run_it(name):
    assert "NOT RUN" in read_board_files("zcu111")[name]


@pytest.mark.long
@pytest.mark.parametrize("streams", ["axi", "axis"])
def test_ip_is_made_of_files_that_are_there(built, tmp_path, streams):
    record = recorded(built, tmp_path, "package_ip.tcl", "demo", streams)
    (read,) = (line for line in record.splitlines() if line.startswith("read_verilog"))
    files = re.findall(r"/\S+\.s?v\b", read)
    assert len(files) >= 10
    for file in files:
        assert (built / file).is_file(), file
    assert f"set_property top demo_{streams}" in record


def test_ip_has_the_register_map(built, tmp_path, demo):
    from fpga.registers import make_register_map

    record = recorded(built, tmp_path, "package_ip.tcl", "demo")
    offsets = [int(each, 16) for each in re.findall(r"set_property address_offset (0x\w+)", record)]
    table = make_register_map(demo)
    assert offsets == [each.get_offset(word) for each in table for word in range(each.word_count)]
    assert "ipx::add_register TARGET_adder_per_sum" in record


def test_project_packages_and_places_it_where_drivers_look(built, tmp_path):
    record = recorded(built, tmp_path, "project.tcl", "demo")
    assert "ipx::save_core" in record
    assert "assign_bd_address -offset 0xA0000000" in record
    assert "lightbed:user:demo:1.0" in record
    assert record.rstrip().splitlines()[-1].startswith("copy")


@pytest.fixture(scope="module")
@needs("process")
def nic(tmp_path_factory):
    from fpga.smartnic.build import build_files as nic_files

    folder = tmp_path_factory.mktemp("nic")
    write_files(nic_files(), folder)
    return folder


def test_the_smartnic_is_packaged_with_its_buses_and_registers(nic, tmp_path):
    from fpga.smartnic.registers import make_smartnic_registers

    record = recorded(nic, tmp_path, "package_ip.tcl", "smartnic")
    (read,) = (line for line in record.splitlines() if line.startswith("read_verilog"))
    files = re.findall(r"/\S+\.sv\b", read)
    assert len(files) >= 40
    assert {Path(file).name for file in files} >= {"smartnic_axi.sv", "smartnic_registers.sv"}
    for file in files:
        assert (nic / file).is_file(), file
    assert "set_property top smartnic_axi" in record
    offsets = [int(each, 16) for each in re.findall(r"set_property address_offset (0x\w+)", record)]
    assert offsets == [
        each.get_offset(word) for each in make_smartnic_registers() for word in range(each.word_count)
    ]


def test_the_smartnic_has_its_registers_its_weights_and_its_streams(nic, tmp_path):
    record = recorded(nic, tmp_path, "smartnic.tcl")
    assert "ipx::save_core" in record
    assert "assign_bd_address -offset 0xA0000000 -range 64K" in record
    assert "get_bd_intf_pins processor/S_AXI_HP0_FPD" in record
    assert len(re.findall("^make_bd_intf_pins_external -name", record, re.MULTILINE)) == 5
    assert "write_bitstream" not in record
    assert record.rstrip().splitlines()[-1].startswith("report_timing_summary")


def test_the_smartnic_with_a_top_around_it_has_a_bitstream(nic, tmp_path):
    record = recorded(nic, tmp_path, "smartnic.tcl", nic, tmp_path / "project", tmp_path)
    assert "set_property top board" in record
    assert "launch_runs impl_1 -to_step write_bitstream" in record
    assert record.rstrip().splitlines()[-1].startswith("copy")


def test_a_datapath_must_be_named(built, tmp_path):
    tclsh = shutil.which("tclsh")
    if tclsh is None:
        pytest.skip("needs tclsh: apt install tcl")
    done = subprocess.run(
        [tclsh, built / "project.tcl"], capture_output=True, text=True, check=False, timeout=30
    )
    assert done.returncode != 0
    assert "which datapath?" in done.stderr
