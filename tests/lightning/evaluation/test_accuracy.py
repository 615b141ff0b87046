"""Right answers are counted, batch by batch, and every image keeps its noise."""

import numpy as np
import pytest
from libraries import skip_without

skip_without("numba", reason="noise needs numba: pip install 'lightbed[inference]'")

from lightning.errors import InputError
from lightning.evaluation import Dataset, evaluate, load_dataset
from lightning.evaluation.accuracy import count_correct, measure_throughput
from lightning.evaluation.models import load_model_and_data
from lightning.execution import Noise, open_executor


@pytest.fixture
def model_and_data(digits_npz):
    return load_model_and_data(digits_npz, load_dataset("digits"))


@pytest.mark.slow
def test_what_is_counted_is_what_the_executor_answers(model_and_data):
    model, data = model_and_data
    executor = open_executor(model, "exact")
    found = evaluate(executor, data)
    answers = executor.run(data.x.reshape(500, 64))
    assert found.correct_count == (answers.classes == data.y).sum()
    assert found.images == 500
    assert found.accuracy > 0.8
    assert found.images_per_s > 0
    assert found.cycles == answers.cycles > 0


@pytest.mark.parametrize("batch", [1, 77, 500])
def test_the_size_of_batches_changes_no_answer(batch, model_and_data):
    model, data = model_and_data
    executor = open_executor(model, "noisy", noise=Noise(sigma=8.0), seed=2)
    assert evaluate(executor, data, batch=batch).correct_count == evaluate(executor, data).correct_count


def test_seeds_differ_and_repeat(model_and_data):
    model, data = model_and_data
    noise = Noise(sigma=8.0)
    right = [
        evaluate(open_executor(model, "noisy", noise=noise, seed=seed), data).correct_count
        for seed in (1, 2, 3, 1)
    ]
    assert right[0] == right[3]
    assert len(set(right)) > 1


def test_a_single_score_says_yes_above_zero():
    scores = np.float32([[-0.5], [0.0], [0.5]])
    assert count_correct(scores, np.array([0, 0, 1])) == 3


def test_classes_that_the_model_has_not_are_refused(model_and_data):
    model, data = model_and_data
    executor = open_executor(model, "exact")
    for classes in (data.y + 1, data.y - 1):
        with pytest.raises(InputError, match="has scores for 0 to 9"):
            evaluate(executor, Dataset("others", data.x, classes, data.x[:0], data.y[:0]))


def test_images_of_another_size_are_refused(model_and_data):
    model, data = model_and_data
    with pytest.raises(InputError, match="an image has 10 values, but digits takes"):
        evaluate(
            open_executor(model, "exact"),
            Dataset("others", data.x[:, 0, :1].repeat(10, 1), data.y, data.x[:0], data.y[:0]),
        )


def test_the_pace_is_that_of_the_median_run():
    calls = []
    found = measure_throughput(calls.append, np.zeros((64, 2)), duration_s=0.0)
    assert len(calls) == 4  # once to warm up, three times to measure
    assert found > 0
