"""The protocol's documents: what is sent is understood, and what is no request is refused by name, never worse."""

import json

import numpy as np
import pytest
from libraries import skip_without

skip_without("orjson", reason="documents are read by orjson: pip install 'lightbed[serve]'")

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from lightning.errors import MalformedRequest
from lightning.serving.http.binary import DTYPE_BY_DATATYPE, from_bytes, from_lists
from lightning.serving.http.v2 import decode_request, encode_answer

NUMBERS = st.sampled_from(sorted(DTYPE_BY_DATATYPE)).flatmap(
    lambda name: st.tuples(
        st.just(name),
        arrays.arrays(
            DTYPE_BY_DATATYPE[name],
            arrays.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=4),
            elements={"allow_nan": False, "allow_infinity": False} if name[:2] == "FP" else None,
        ),
    )
)


def as_json(document):
    return json.dumps(document).encode()


def one_input(**changes):
    tensor = {"name": "x", "shape": [1, 3], "datatype": "UINT8", "data": [1, 2, 3]}
    found = tensor | changes
    return {"inputs": [{key: value for key, value in found.items() if value is not None}]}


def decoded(document):
    return decode_request(as_json(document))


# --------------------------------------------------------------------------------------- requests


@given(NUMBERS, st.booleans())
def test_lists_carry_every_number(drawn, nested):
    datatype, numbers = drawn
    data = (numbers if nested else numbers.ravel()).tolist()
    if datatype == "FP16":
        with pytest.raises(MalformedRequest, match="JSON cannot carry"):
            from_lists(data, datatype, numbers.shape)
        return
    if nested and numbers.size == 0 and numbers.ndim > 1:
        return  # an empty list does not say how it is nested
    found = decoded(one_input(shape=list(numbers.shape), datatype=datatype, data=data)).inputs[0].array
    assert found.dtype == numbers.dtype
    assert found.shape == numbers.shape
    assert np.array_equal(found, numbers)
    assert not found.flags.writeable


@given(NUMBERS, NUMBERS)
def test_bytes_behind_the_document_carry_every_number(first, second):
    inputs = [
        {
            "name": name,
            "shape": list(numbers.shape),
            "datatype": datatype,
            "parameters": {"binary_data_size": numbers.nbytes},
        }
        for name, (datatype, numbers) in (("a", first), ("b", second))
    ]
    text = as_json({"inputs": inputs})
    request = decode_request(text + first[1].tobytes() + second[1].tobytes(), len(text))
    for tensor, (_, numbers) in zip(request.inputs, (first, second), strict=True):
        assert tensor.array.dtype == numbers.dtype
        assert tensor.array.tobytes() == numbers.tobytes()
        assert tensor.array.flags.aligned
        assert not tensor.array.flags.writeable


def test_the_rest_of_a_request():
    request = decoded(
        one_input()
        | {
            "id": "abc",
            "parameters": {"timeout": 5, "binary_data_output": True},
            "outputs": [{"name": "y"}, {"name": "z", "parameters": {"binary_data": False}}],
        }
    )
    assert request.id == "abc"
    assert request.parameters["timeout"] == 5
    assert [(each.name, each.is_binary) for each in request.outputs] == [("y", True), ("z", False)]


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ([], "the request is not a JSON object"),
        ({}, "the request has no list 'inputs'"),
        ({"inputs": {}}, "the request has no list 'inputs'"),
        ({"inputs": [5]}, "an input is not a JSON object"),
        (one_input(name=None), "'name' is missing or not a string"),
        (one_input(name=7), "'name' is missing or not a string"),
        (one_input(shape=None), "None is not a valid shape"),
        (one_input(shape=[]), "is not a valid shape"),
        (one_input(shape=[1, -3]), "is not a valid shape"),
        (one_input(shape=[1, 3.0]), "is not a valid shape"),
        (one_input(shape=[True, 3]), "is not a valid shape"),
        (one_input(shape=[1] * 9), "is not a valid shape"),
        (one_input(datatype="BOOL"), "datatype 'BOOL' is not supported"),
        (one_input(datatype="BYTES"), "datatype 'BYTES' is not supported"),
        (one_input(datatype=["UINT8"]), "datatype ['UINT8'] is not supported"),
        (one_input(data=None), "`data` of a tensor is not a list"),
        (one_input(data="123"), "`data` of a tensor is not a list"),
        (one_input(data=[1, 2]), "a tensor of shape [1, 3] does not have 2 numbers"),
        (
            one_input(data=[1, 2, 256]),
            "`data` of a tensor holds values that are not valid UINT8",
        ),
        (
            one_input(data=[1, 2, -1]),
            "`data` of a tensor holds values that are not valid UINT8",
        ),
        (
            one_input(data=[1, 2, 0.5]),
            "`data` of a tensor holds values that are not valid UINT8",
        ),
        (
            one_input(data=[1, 2, "3"]),
            "`data` of a tensor holds values that are not valid UINT8",
        ),
        (
            one_input(data=[1, 2, None]),
            "`data` of a tensor holds values that are not valid UINT8",
        ),
        (
            one_input(datatype="FP32", data=[1, 2, "3"]),
            "`data` of a tensor holds values that are not valid FP32",
        ),
        (
            one_input(datatype="FP32", data=[1, 2, {}]),
            "`data` of a tensor holds values that are not valid FP32",
        ),
        (one_input(data=[[1, 2], [3]]), "`data` of a tensor is not nested like its shape"),
        (one_input(data=[[1, 2, 3], [4, 5, 6]]), "a tensor of shape [1, 3] does not have 6 numbers"),
        (
            one_input(data=[[1, 2, [3]]]),
            "`data` of a tensor holds values that are not valid UINT8",
        ),
        (one_input(shape=[10**18, 10**18]), "is not a valid shape"),
        (one_input(shape=[10**6, 10**6]), "a tensor of shape [1000000, 1000000] does not have 3 numbers"),
        (
            one_input(parameters={"binary_data_size": 3}),
            "input 'x' needs 3 bytes according to `binary_data_size`, but 0 arrived",
        ),
        (
            one_input(parameters={"binary_data_size": -1}, data=None),
            "according to `binary_data_size`, but 0 arrived",
        ),
        (
            one_input(parameters={"binary_data_size": True}, data=None),
            "according to `binary_data_size`, but 0 arrived",
        ),
        (one_input(parameters={"shared_memory_region": "r"}), "shared memory is not supported"),
        (one_input(parameters=[]), "`parameters` of input 'x' is not a JSON object"),
        (one_input() | {"id": 7}, "'id' is missing or not a string"),
        (one_input() | {"outputs": "y"}, "no list 'outputs'"),
        (one_input() | {"outputs": [{}]}, "'name' is missing or not a string"),
        (one_input() | {"parameters": {"binary_data_output": 1}}, "is not a boolean"),
        (one_input() | {"outputs": [{"name": "y", "parameters": {"classification": 3}}]}, "'classification'"),
    ],
)
def test_what_is_no_request_is_refused_by_name(document, says):
    with pytest.raises(MalformedRequest) as caught:
        decoded(document)
    assert says in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("body", "length"),
    [
        (b"", None),
        (b"{", None),
        (b'{"inputs": NaN}', None),
        (b"\xff\xfe", None),
        (b"{}" + b"[" * 5000, None),
        (b"[" * 100_000, None),
        (b"{}", 0),
        (b"{}", 3),
    ],
)
def test_bodies_that_are_no_json(body, length):
    with pytest.raises(MalformedRequest):
        decode_request(body, length)


def test_null_is_nothing():
    plain = decoded(one_input())
    nulls = decoded(one_input() | {"id": None, "parameters": None, "outputs": None})
    assert (nulls.id, nulls.parameters, nulls.outputs) == (plain.id, plain.parameters, plain.outputs)


def test_bytes_that_belong_to_no_tensor():
    text = as_json(one_input())
    with pytest.raises(MalformedRequest, match="4 bytes follow the last tensor"):
        decode_request(text + b"abcd", len(text))


def test_bytes_must_be_as_many_as_the_shape_says():
    with pytest.raises(
        MalformedRequest, match=r"a tensor of FP32 and shape \[1, 2\] has 8 bytes, but 7 arrived"
    ):
        from_bytes(bytes(7), "FP32", (1, 2))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
PLACES = ["inputs", "id", "parameters", "outputs", "name", "shape", "datatype", "data", "binary_data_size"]


@pytest.mark.slow
def test_whatever_a_document_holds_the_codec_answers_or_refuses():
    outcomes = {"read": 0, "refused": 0}

    @settings(max_examples=150)
    @given(st.sampled_from(PLACES), VALUES, st.integers(-2, 2), st.binary(max_size=6))
    def check(place, value, shift, tail):
        document = one_input() | {"id": "", "parameters": {}}
        inner = document["inputs"][0]
        if place == "binary_data_size":
            inner["parameters"] = {place: value}
        else:
            (inner if place in inner else document)[place] = value
        text = as_json(document)
        try:
            decode_request(text + tail, None if not tail else len(text) + shift)
        except MalformedRequest:
            outcomes["refused"] += 1
        else:
            outcomes["read"] += 1

    check()
    assert outcomes["read"] >= 2
    assert outcomes["refused"] >= 50


@settings(max_examples=200)
@given(st.binary(max_size=60), st.none() | st.integers(0, 70))
def test_bytes_of_any_kind_are_refused_and_nothing_else(body, length):
    with pytest.raises(MalformedRequest):
        decode_request(body, length)


# ---------------------------------------------------------------------------------------- answers

SCORES = np.array([[0.5, -2.0, 3.25]], np.float32)


def test_an_answer_in_json():
    request = decoded(one_input() | {"id": "7"})
    body = encode_answer("m", "2", request, {"y": SCORES}, {"key": 1})
    assert body.json_length is None
    assert json.loads(body.content) == {
        "model_name": "m",
        "model_version": "2",
        "id": "7",
        "parameters": {"key": 1},
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [1, 3], "data": [0.5, -2.0, 3.25]}],
    }


def test_an_answer_with_binary_tensors():
    request = decoded(one_input() | {"parameters": {"binary_data_output": True}})
    body = encode_answer("m", "2", request, {"y": SCORES, "z": SCORES[:, :1]}, {})
    document = json.loads(body.content[: body.json_length])
    sizes = [each["parameters"]["binary_data_size"] for each in document["outputs"]]
    assert sizes == [12, 4]
    assert body.content[body.json_length :] == SCORES.tobytes() + SCORES[:, :1].tobytes()


def test_only_wanted_outputs_are_sent_in_the_wanted_form():
    wanted = [{"name": "z", "parameters": {"binary_data": True}}, {"name": "y"}]
    body = encode_answer("m", "2", decoded(one_input() | {"outputs": wanted}), {"y": SCORES, "z": SCORES}, {})
    document = json.loads(body.content[: body.json_length])
    assert [each["name"] for each in document["outputs"]] == ["z", "y"]
    assert ["data" in each for each in document["outputs"]] == [False, True]


def test_an_output_that_is_not_there():
    request = decoded(one_input() | {"outputs": [{"name": "q"}]})
    with pytest.raises(MalformedRequest, match=r"model 'm' has no output 'q'\. It has y"):
        encode_answer("m", "2", request, {"y": SCORES}, {})


def test_true_and_false_are_no_numbers():
    with pytest.raises(MalformedRequest, match="`data` of a tensor holds booleans, which are not valid"):
        from_lists([1.0, True], "FP32", (1, 2))
    assert from_lists([1.0, 1], "FP32", (1, 2)).tolist() == [[1.0, 1.0]]
