"""Inputs that an executor takes and those that it refuses, in words; and that serving finds everything compiled."""

import sys
import threading

import numpy as np
import pytest

from lightning.compiler import Hardware
from lightning.errors import CompileError, InputError, MissingLibrary, OutOfRange
from lightning.execution import Noise, open_executor


@pytest.fixture
def executor(random_model):
    return open_executor(random_model(1, (12, 8, 3), scheme="scaled"))


@pytest.mark.parametrize(
    ("inputs", "reported"),
    [
        (np.zeros((2, 13), np.uint8), r"12\).*\(2, 13\)"),
        (np.zeros((2, 13)), r"12\).*\(2, 13\)"),
        (np.zeros((0, 12), np.uint8), "empty"),
        (np.uint8(3), r"12\)"),
        (np.full((1, 12), np.nan), "NaN"),
        (np.full((1, 12), np.inf, np.float32), "infinity"),
        (np.full((1, 12), "a"), "type"),
        (np.full((1, 12), 1j), "type"),
        ([[1, 2], [3]], "array"),
    ],
)
def test_inputs_that_do_not_fit_are_refused_in_words(executor, inputs, reported):
    with pytest.raises(InputError, match=reported):
        executor.run(inputs)


@pytest.mark.parametrize("keys", [[1], [1, -1], [1.0, 2.0], [[1, 2]], [[1], [2, 3]]])
def test_keys_that_do_not_fit_are_refused(executor, keys):
    with pytest.raises(InputError, match="keys"):
        executor.run(np.zeros((2, 12), np.uint8), keys)


def test_an_unknown_fidelity_names_the_known_ones(random_model):
    with pytest.raises(OutOfRange, match="exact, noisy, device, datapath"):
        open_executor(random_model(1, (4, 2)), "perfect")


def test_noise_without_numba_names_what_to_install(random_model, monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    with pytest.raises(MissingLibrary, match=r"install the extra \[kit\] of lightbed"):
        open_executor(random_model(1, (4, 2)), "noisy")


@pytest.mark.parametrize(
    ("fidelity", "asked"),
    [
        ("noisy", {"noise": Noise("foo")}),
        ("noisy", {"noise": Noise(sigma=1e300)}),
        ("noisy", {"noise": Noise(sigma=float("nan"))}),
        ("noisy", {"noise": Noise(mean=-1e9)}),
        ("noisy", {"noise": Noise(average=1.5)}),
        ("noisy", {"average": 1.5}),
        ("noisy", {"seed": None}),
        ("noisy", {"seed": "a"}),
        ("noisy", {"seed": 1.5}),
        ("noisy", {"seed": 2**64}),
        ("exact", {"seed": -1}),
        ("exact", {"average": 0}),
        ("exact", {"average": 2}),
        ("datapath", {"average": 2}),
    ],
)
def test_what_cannot_be_asked_is_refused_in_words(random_model, fidelity, asked):
    if fidelity == "noisy":
        pytest.importorskip("numba", reason="noise is made by numba")
    with pytest.raises(OutOfRange):
        open_executor(random_model(1, (6, 4)), fidelity, **asked)


def test_images_may_come_without_channels_for_a_network_that_takes_rows(executor):
    pictures = np.random.default_rng(1).integers(0, 256, (2, 3, 4)).astype(np.uint8)
    assert executor.run(pictures).scores.tolist() == executor.run(pictures.reshape(2, 12)).scores.tolist()


def test_answers_know_their_classes(executor):
    images = np.random.default_rng(1).integers(0, 256, (5, 12)).astype(np.uint8)
    answers = executor.run(images)
    assert answers.classes.tolist() == answers.scores.argmax(axis=1).tolist()
    assert answers.scores.dtype == np.float32


@pytest.mark.parametrize("noise", [None, Noise()])
def test_a_server_gets_the_same_answers_from_memory_of_either_kind(random_model, noise):
    pytest.importorskip("numba")
    executor = open_executor(
        random_model(1, (12, 8, 3), scheme="scaled"), "noisy" if noise else "exact", noise=noise, seed=3
    )
    executor.warm()
    compiled = len(executor.chain.kernel.signatures)
    pixels = np.random.default_rng(1).integers(0, 256, 12).astype(np.uint8)
    expected = executor.run(pixels[None], [77]).scores[0].tolist()
    for raw in (pixels, np.frombuffer(pixels.tobytes(), np.uint8), memoryview(pixels.tobytes())):
        out = np.empty(3, np.float32)
        executor.chain.compute_scores(np.asarray(raw), 77, out)
        assert out.tolist() == expected
    assert len(executor.chain.kernel.signatures) == compiled == 1


def test_threads_share_a_chain(random_model):
    pytest.importorskip("numba")
    chain = open_executor(random_model(1, (12, 8, 3)), "noisy").chain
    images = np.random.default_rng(1).integers(0, 256, (200, 12)).astype(np.uint8)
    keys = np.arange(200, dtype=np.uint64)
    alone, found = np.empty((200, 3), np.float32), [np.empty((200, 3), np.float32) for _ in range(4)]
    chain.compute_batch_scores(images, keys, alone)
    threads = [
        threading.Thread(target=chain.compute_batch_scores, args=(images, keys, each)) for each in found
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(each.tolist() == alone.tolist() for each in found)


def test_what_is_no_chain_says_where_to_go(random_model):
    pytest.importorskip("numba")
    from lightning.execution.chain import Chain

    shared = Noise(intensity=1e-4)
    model = random_model(1, (12, 8, 3), hardware=Hardware(wavelengths=2))
    with pytest.raises(CompileError, match="open_executor"):
        Chain(model, shared)
