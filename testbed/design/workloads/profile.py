"""Profiles: measured times that replace the roofline, in a JSON file of seconds by operator name.

    {"lightbed-profile": 1,
     "device": "4 x A100-SXM4-40GB, PyTorch 2.4, TF32",
     "operators": {
       "top0": {"samples": [32, 64, 128], "forward_s": [2.1e-4, 3.9e-4, 7.7e-4], "backward_s": [4e-4, 8e-4, 1.5e-3]},
       "loss":  {"forward_s_per_sample": 1e-7, "backward_s_per_sample": 1e-7}}}

Times are for one server that computes the whole operator for a number of samples. They are interpolated between two
numbers, constant below the smallest, and proportional beyond the largest. Operators that are not in the file use the
roofline. One of k shards takes 1/k of the time. `backward_s` may be omitted for serving.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import pairwise
from pathlib import Path
from sys import float_info
from typing import Any

import numpy as np

from testbed.design.workloads.model import Workload
from testbed.design.workloads.sharding import list_trainable
from testbed.errors import WorkloadError

_VERSION_KEY = "lightbed-profile"


@dataclass(frozen=True, slots=True)
class MeasuredOperator:
    """Seconds of one operator at ascending numbers of samples."""

    samples: tuple[float, ...]
    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...] | None

    def compute_seconds(self, sample_count: float) -> tuple[float, float]:
        """Return the forward and backward seconds for `sample_count` samples, interpolated as the module describes.

        A backward pass without measurement takes 0 s; `check_profile` refuses such a profile for training.
        """
        scale = max(sample_count / self.samples[-1], 1.0)
        forward_s, backward_s = (
            float(np.interp(sample_count, self.samples, measured_s)) * scale if measured_s else 0.0
            for measured_s in (self.forward_s, self.backward_s)
        )
        return forward_s, backward_s


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """Measured operators by name. Profiles are equal only if they are the same object."""

    device: str
    operators: Mapping[str, MeasuredOperator]


def read_profile(path: str | Path) -> Profile:
    """Return the profile in a file. Raises `WorkloadError` with the file, the operator and the fault."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise WorkloadError(f"profile {path}: {error.strerror}: give a readable file") from error
    except ValueError as error:
        raise WorkloadError(f"profile {path} is not valid JSON: {error}; fix it, or measure again") from error
    return parse_profile(document, name=str(path))


def parse_profile(document: Any, *, name: str = "profile") -> Profile:
    """Return the profile in a parsed JSON document. Raises `WorkloadError` if it is invalid."""
    if not isinstance(document, dict) or document.get(_VERSION_KEY) != 1:
        raise WorkloadError(
            f'{name}: not a profile of version 1: it must begin with {{"{_VERSION_KEY}": 1, ...}}'
        )
    operators = document.get("operators")
    if not isinstance(operators, dict):
        raise WorkloadError(f'{name}: "operators" must map operator names to measured times')
    return Profile(
        str(document.get("device", "")),
        {operator: _parse_measured(entry, f"{name}: {operator}") for operator, entry in operators.items()},
    )


def check_profile(workload: Workload, profile: Profile | None) -> None:
    """Raise `WorkloadError` if a profile names unknown operators, or lacks a backward pass that training needs."""
    if profile is None:
        return
    has_backward, op_indices = list_trainable(workload), workload.index_by_operator
    source = f"profile of {profile.device or 'times'}"
    for name, measured_operator in profile.operators.items():
        if name not in op_indices:
            close_matches = get_close_matches(name, op_indices, 1)
            hint = (
                f"did you mean {close_matches[0]!r}?"
                if close_matches
                else f"it has {', '.join(list(op_indices)[:6])} ..."
            )
            raise WorkloadError(f"{source}: {workload.name} has no operator {name!r}; {hint}")
        if measured_operator.backward_s is None and has_backward[op_indices[name]]:
            raise WorkloadError(
                f"{source}: {name} has no backward pass, which training needs: measure backward_s, too"
            )


def _parse_measured(entry: Any, name: str) -> MeasuredOperator:
    if not isinstance(entry, dict):
        raise WorkloadError(f"{name}: give an object with samples, forward_s and backward_s")
    if "samples" not in entry:
        # Times beyond the largest number of samples are proportional, so a single tiny number gives a line through 0.
        tiny_sample_count = 1e-9
        (forward_s_per_sample,) = _parse_numbers(
            [entry.get("forward_s_per_sample")], f"{name}: forward_s_per_sample"
        )
        if "backward_s_per_sample" not in entry:
            return MeasuredOperator((tiny_sample_count,), (forward_s_per_sample * tiny_sample_count,), None)
        (backward_s_per_sample,) = _parse_numbers(
            [entry["backward_s_per_sample"]], f"{name}: backward_s_per_sample"
        )
        return MeasuredOperator(
            (tiny_sample_count,),
            (forward_s_per_sample * tiny_sample_count,),
            (backward_s_per_sample * tiny_sample_count,),
        )
    samples = _parse_numbers(entry["samples"], f"{name}: samples")
    forward_s = _parse_numbers(entry.get("forward_s"), f"{name}: forward_s")
    backward_s = _parse_numbers(entry["backward_s"], f"{name}: backward_s") if "backward_s" in entry else None
    number_lists = (samples, forward_s) if backward_s is None else (samples, forward_s, backward_s)
    if not samples or len({len(numbers) for numbers in number_lists}) > 1:
        raise WorkloadError(
            f"{name}: samples, forward_s and backward_s must be lists of equal length, at least 1"
        )
    if samples[0] <= 0 or any(
        samples_after <= samples_before for samples_before, samples_after in pairwise(samples)
    ):
        raise WorkloadError(f"{name}: samples {list(samples)} must be above 0 and ascend")
    return MeasuredOperator(samples, forward_s, backward_s)


def _parse_numbers(values: Any, name: str) -> tuple[float, ...]:
    if not isinstance(values, list):
        raise WorkloadError(f"{name}: a list of numbers is missing")
    for value in values:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 <= value <= float_info.max:
            raise WorkloadError(f"{name}: {repr(value)[:40]} is not a finite number of 0 or more")
    return tuple(map(float, values))
