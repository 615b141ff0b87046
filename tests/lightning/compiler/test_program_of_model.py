"""A model as targets of the count-action datapath."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from libraries import skip_without

from fpga.program import program_from_json
from lightning.compiler import Hardware, Options, compile_network, compute_layer_work, make_program
from lightning.compiler.lng_file import pack_model, unpack_model
from lightning.errors import CompileError

skip_without("lark", reason="the library of count-action modules is text: pip install 'lightbed[fpga]'")


@pytest.fixture
def lenet(chain):
    shapes = ((300, 784), (100, 300), (10, 100))
    return compile_network(chain([np.ones(shape) for shape in shapes]), options=Options("published"))


def test_lenet_has_a_layer_of_targets_for_each_of_its_layers(lenet):
    assert [dict(layer) for layer in make_program(lenet).layers] == [
        {"adder.beats": 49, "adder.products": 14_700, "layers.layers": 3},
        {"adder.beats": 19, "adder.products": 1_900, "layers.layers": 3},
        {"adder.beats": 7, "adder.products": 70, "layers.layers": 3},
    ]


def test_a_layer_of_signed_activations_is_sent_in_two_passes(compiled_residual):
    program = make_program(compiled_residual)
    passes = {name: 1 + layer.signed for name, layer in compiled_residual.layers.items()}
    assert passes == {"stem": 2, "wide": 1, "short": 1, "head": 2}
    assert len(program.layers) == sum(passes.values())
    assert {layer["layers.layers"] for layer in program.layers} == {6}
    beats = [compute_layer_work(layer, Hardware()).beats for layer in compiled_residual.layers.values()]
    assert sum(layer["adder.products"] for layer in program.layers) == sum(beats)


def test_sums_that_wrap_are_another_datapath(lenet):
    assert make_program(lenet).digest != make_program(replace(lenet, wrap=True)).digest


def test_the_program_is_in_the_file_and_the_hash_is_not_of_it(lenet, tmp_path):
    import io
    import zipfile

    with zipfile.ZipFile(io.BytesIO(pack_model(lenet))) as archive:
        assert program_from_json(archive.read("program.json").decode()) == make_program(lenet)
    other = replace(lenet, hardware=Hardware(wavelengths=2))
    with zipfile.ZipFile(io.BytesIO(pack_model(other))) as archive:
        assert "program.json" not in archive.namelist()
    assert unpack_model(pack_model(other)).hardware.wavelengths == 2


@pytest.mark.parametrize("hardware", [Hardware(lanes=8), Hardware(wavelengths=2), Hardware(cores=4)])
def test_hardware_that_the_datapath_is_not_made_for_is_refused(lenet, hardware):
    with pytest.raises(CompileError, match="16 lanes, 1 wavelength") as caught:
        make_program(replace(lenet, hardware=hardware))
    assert "Compile it again" in caught.value.hint
