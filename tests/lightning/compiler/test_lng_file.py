"""The `.lng` file: what goes in comes out, equal models give equal bytes, and damage is found."""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lightning.compiler import (
    CompiledModel,
    Hardware,
    Options,
    compile_network,
    load_model,
    model_hash,
    save_model,
)
from lightning.compiler import lng_file as lng
from lightning.compiler.lng_file import pack_model, unpack_model
from lightning.errors import CompileError, ModelFileError
from lightning.networks.network import Node

MODEL_FIELDS = ("scheme", "wrap", "hardware", "origin")


def assert_equal(one, other):
    assert all(getattr(one, name) == getattr(other, name) for name in MODEL_FIELDS)
    assert replace(one.network, constants={}) == replace(other.network, constants={})
    assert one.network.constants.keys() == other.network.constants.keys()
    for name, values in one.network.constants.items():
        assert_same_array(values, other.network.constants[name])
    assert list(one.layers) == list(other.layers)
    for name, layer in one.layers.items():
        for field in ("weights", "bias", "output_scale"):
            assert_same_array(getattr(layer, field), getattr(other.layers[name], field))
        for field in ("name", "input_scale", "signed", "geometry", "vectors"):
            assert getattr(layer, field) == getattr(other.layers[name], field)


def assert_same_array(one, other):
    assert one.dtype == other.dtype
    assert np.array_equal(one, other)
    assert other.flags.writeable
    assert other.flags.c_contiguous


def test_a_model_comes_back_as_it_was(compiled_residual, tmp_path):
    save_model(compiled_residual, tmp_path / "a.lng")
    assert_equal(compiled_residual, load_model(tmp_path / "a.lng"))


def test_equal_models_give_equal_bytes_and_keep_their_hash(compiled_residual):
    content = pack_model(compiled_residual)
    again = unpack_model(content)
    assert pack_model(again) == content
    assert model_hash(again) == model_hash(compiled_residual)
    assert len(model_hash(again)) == 64


def test_whatever_changes_changes_the_hash(compiled_residual):
    layers = dict(compiled_residual.layers)
    layers["head"] = replace(layers["head"], bias=layers["head"].bias + 1)
    changed = [
        replace(compiled_residual, layers=layers),
        replace(compiled_residual, wrap=True),
        replace(compiled_residual, hardware=Hardware(cores=2)),
        replace(compiled_residual, network=replace(compiled_residual.network, notes=())),
    ]
    assert len({model_hash(each) for each in [compiled_residual, *changed]}) == 5


def test_members_are_plain_files_with_their_sums(compiled_residual):
    with zipfile.ZipFile(io.BytesIO(pack_model(compiled_residual))) as archive:
        names = archive.namelist()
        document = json.loads(archive.read("model.json"))
        weights = np.load(io.BytesIO(archive.read("layers/0.weights.npy")), allow_pickle=False)
        sums = archive.read("SHA256SUMS").decode()
    assert names == sorted(names)
    assert document["format"] == 1
    assert document["network"]["preprocessing"]["mean"] == [0.4, 0.6]
    assert weights.tolist() == compiled_residual.layers["stem"].weights.tolist()
    assert [line.split("  ")[1] for line in sums.splitlines()] == [n for n in names if n != "SHA256SUMS"]


def test_attributes_of_every_plain_kind_come_back(chain):
    attributes = {"min": -np.inf, "max": 6.0, "axes": (1, 2), "mode": "x", "flag": True, "none": None}
    network = chain([[[1.0]]])
    layers = compile_network(network, options=Options("published")).layers
    node = Node("clip", "Clip", ("fc1",), "end", {**attributes, "numpy": np.int64(3)})
    network = replace(
        network, nodes=(*network.nodes, node), output="end", shapes={**network.shapes, "end": (1,)}
    )
    found = (
        unpack_model(pack_model(CompiledModel(network, layers, scheme="scaled"))).network.nodes[-1].attributes
    )
    assert found == {**attributes, "numpy": 3}


def test_a_constant_that_is_a_single_number_comes_back(chain):
    network = chain([[[1.0]]])
    network = replace(network, constants={**network.constants, "half": np.float32(0.5)})
    assert (
        unpack_model(pack_model(compile_network(network, options=Options("published"))))
        .network.constants["half"]
        .shape
        == ()
    )


def test_a_file_of_format_1_is_read_by_every_later_version():
    model = load_model(Path(__file__).with_name("format-1.lng"))
    assert model_hash(model) == "4b6d1185c32e7b7624ad0daf301b32741aaa63dec8408b70f6b03a3c6dfd6922"
    assert (model.scheme, model.hardware, model.network.preprocessing.mean) == (
        "scaled", Hardware(wavelengths=2, skip_zeros=True), (0.25,),
    )  # fmt: skip
    assert model.layers["fc1"].weights.tolist() == [[[255, -128], [0, 255]]]
    assert model.origin["toolkit"] == "0.1.0"


def test_an_attribute_that_no_file_can_keep_is_named(chain):
    network = chain([[[1.0]]])
    node = replace(network.nodes[0], attributes={"function": print})
    with pytest.raises(CompileError, match="Gemm fc1 has an attribute"):
        pack_model(CompiledModel(replace(network, nodes=(node,)), {}))


# ------------------------------------------------------------------------------------- damage


@pytest.fixture
def small(chain):
    weights = np.random.default_rng(2).integers(-90, 90, (3, 5)) / 90
    return compile_network(chain([weights]), options=Options("published"))


@pytest.mark.slow
def test_any_byte_that_is_flipped_is_found_or_changes_nothing(small):
    content = pack_model(small)
    random = np.random.default_rng(1)
    refused = 0
    for _ in range(1500):
        damaged = bytearray(content)
        damaged[random.integers(len(content))] ^= 1 << int(random.integers(8))
        try:
            assert_equal(small, unpack_model(bytes(damaged)))
        except ModelFileError:
            refused += 1
    assert refused > 1000


def test_a_file_that_ends_early_is_refused_wherever_it_ends(small):
    content = pack_model(small)
    for length in range(0, len(content), 23):
        with pytest.raises(ModelFileError, match=r"not a \.lng file, or is damaged"):
            unpack_model(content[:length])


@pytest.mark.parametrize("content", [b"", b"PK", b"\x89PNG\r\n", b"hello" * 100, bytes(1000)])
def test_what_is_no_model_is_refused(content):
    with pytest.raises(ModelFileError, match=r"not a \.lng file"):
        unpack_model(content)


def repacked(content, change, sums=True):
    """Return the same file with other members, and right sums."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members = change(members)
    if sums:
        held = {name: each for name, each in members.items() if name != "SHA256SUMS"}
        members["SHA256SUMS"] = lng._format_checksums(held).encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, each in members.items():
            archive.writestr(name, each)
    return buffer.getvalue()


def document_with(members, **changes):
    document = json.loads(members["model.json"])
    document.update(changes)
    return {**members, "model.json": json.dumps(document).encode()}


def edited(path, value):
    """Return a change of one place in the document."""

    def change(members):
        document = json.loads(members["model.json"])
        place = document
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value
        return {**members, "model.json": json.dumps(document).encode()}

    return change


def test_a_later_version_says_what_to_do(small):
    with pytest.raises(ModelFileError, match="format 2, written by lightbed") as caught:
        unpack_model(
            repacked(pack_model(small), lambda members: document_with(members, format=2), sums=False)
        )
    assert caught.value.hint == "install a newer lightbed"


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        lambda members: {name: each for name, each in members.items() if name != "model.json"},
        lambda members: {
            name: each for name, each in members.items() if not name.startswith("layers/0.bias")
        },
        lambda members: {**members, "model.json": b"[]"},
        lambda members: {**members, "model.json": b"{" * 100_000},
        lambda members: {**members, "layers/0.weights.npy": b"\x93NUMPY\x01\x00v\x00{'descr': '|O'"},
        lambda members: {**members, "layers/0.weights.npy": members["layers/0.weights.npy"][:-2]},
        lambda members: {**members, "layers/0.weights.npy": members["layers/0.bias.npy"]},
        lambda members: {**members, "layers/0.weights.npy": npy(np.full((1, 3, 5), 300, np.int16))},
        lambda members: {**members, "layers/0.weights.npy": npy(np.zeros((1, 5, 3), np.int16))},
        lambda members: {**members, "layers/0.output_scale.npy": npy(np.full((1, 3), np.nan, np.float32))},
        lambda members: {**members, "constants/0.npy": npy(np.full((3, 5), np.inf, np.float32))},
        lambda members: {**members, "constants/0.npy": npy(np.array(["a"]))},
        lambda members: {**members, "constants/0.npy": huge_npy()},
        edited(("format",), 0),
        edited(("format",), "1"),
        edited(("scheme",), "other"),
        edited(("hardware", "lanes"), 0),
        edited(("hardware",), {"speed": 3}),
        edited(("layers", 0, "node"), "nobody"),
        edited(("layers", 0, "input_scale"), 0),
        edited(("layers", 0, "input_scale"), "x"),
        edited(("layers", 0, "vectors"), 2),
        edited(("layers", 0, "geometry"), {"channels": 1}),
        edited(("network", "nodes", 0, "operation"), "Tanh"),
        edited(("network", "nodes", 0, "inputs"), ["elsewhere", "w1"]),
        edited(("network", "output"), "nowhere"),
        edited(("network", "shapes"), {}),
        edited(("network", "name"), 5),
        edited(("network", "nodes", 0, "inputs"), []),
        edited(("network", "preprocessing", "layout"), "other"),
        edited(("network", "preprocessing", "scale"), 0),
        edited(("network", "preprocessing", "mean"), [1, 2, 3, 4]),
        edited(("layers",), []),
        edited(("layers", 0, "signed"), "no"),
        edited(("wrap",), "no"),
    ],
)
def test_a_file_with_right_sums_that_is_no_model_is_refused(small, change):
    with pytest.raises(ModelFileError) as caught:
        unpack_model(repacked(pack_model(small), change))
    assert caught.value.hint


def of_node(operation, change):
    """Return a change of the first node of this operation in the document."""

    def changed(members):
        document = json.loads(members["model.json"])
        node = next(each for each in document["network"]["nodes"] if each["operation"] == operation)
        change(document, node)
        return {**members, "model.json": json.dumps(document).encode()}

    return changed


@pytest.mark.parametrize(
    ("operation", "change"),
    [
        ("Softmax", lambda _, node: node.update(attributes={})),
        ("Conv", lambda _, node: node["attributes"].update(pads=[10**5] * 4)),
        (
            "GlobalAveragePool",
            lambda document, node: document["network"]["shapes"].update({node["output"]: [5, 5, 5]}),
        ),
        ("Flatten", lambda _, node: node.update(operation="Softmax", attributes={"axis": 7})),
        ("Flatten", lambda _, node: node.update(operation="Foo")),
        ("Flatten", lambda _, node: node.update(operation="Reshape", attributes={"shape": [3]})),
        ("Flatten", lambda document, _: document["layers"].pop()),
        ("Flatten", lambda document, _: document.update(scheme="published")),
    ],
)
def test_a_model_whose_nodes_cannot_be_computed_is_refused(compiled_residual, operation, change):
    with pytest.raises(ModelFileError):
        unpack_model(repacked(pack_model(compiled_residual), of_node(operation, change)))


def npy(values):
    buffer = io.BytesIO()
    np.save(buffer, values)
    return buffer.getvalue()


def huge_npy():
    """Return an array whose header declares a terabyte."""
    header = "{'descr': '<f4', 'fortran_order': False, 'shape': (274877906944,), }"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode()


def test_contents_that_are_not_those_of_the_sums_are_refused(small):
    changed = repacked(pack_model(small), edited(("wrap",), True), sums=False)
    with pytest.raises(ModelFileError, match="SHA256SUMS"):
        unpack_model(changed)


def test_a_file_that_declares_too_much_is_not_unpacked(small, monkeypatch):
    monkeypatch.setattr(lng, "MAX_UNPACKED_BYTES", 10_000)
    bomb = repacked(pack_model(small), lambda members: {**members, "zeros": bytes(100_000)})
    assert len(bomb) < 10_000
    with pytest.raises(ModelFileError, match="too large"):
        unpack_model(bomb)


def test_a_file_of_too_many_members_is_not_unpacked(small, monkeypatch):
    monkeypatch.setattr(lng, "MAX_MEMBER_COUNT", 20)
    with pytest.raises(ModelFileError, match="too large"):
        unpack_model(
            repacked(pack_model(small), lambda members: {**members, **{str(n): b"" for n in range(30)}})
        )


def test_paths_that_cannot_be_read_or_written(small, tmp_path):
    with pytest.raises(ModelFileError, match="cannot be read"):
        load_model(tmp_path / "none.lng")
    with pytest.raises(ModelFileError, match="cannot be written"):
        save_model(small, tmp_path / "none" / "a.lng")
