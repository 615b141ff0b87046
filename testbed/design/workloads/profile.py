"""Measured times instead of the roofline: a JSON file of seconds by operator name.

    {"lightbed-profile": 1,
     "device": "4 x A100-SXM4-40GB, PyTorch 2.4, TF32",
     "operators": {
       "top.0": {"samples": [32, 64, 128], "forward_s": [2.1e-4, 3.9e-4, 7.7e-4], "backward_s": [4e-4, 8e-4, 1.5e-3]},
       "loss":  {"forward_s_per_sample": 1e-7, "backward_s_per_sample": 1e-7}}}

Times are those of one server computing the whole operator for so many samples. Between two sizes they are
interpolated, below the smallest they are the smallest's, beyond the largest in proportion. Operators that the file
does not name keep the roofline. A shard of k takes 1/k of the time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from testbed.errors import WorkloadError

_VERSION = "lightbed-profile"


@dataclass(frozen=True, slots=True)
class Measured:
    """Seconds of one operator at ascending numbers of samples."""

    samples: tuple[float, ...]
    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]

    def seconds(self, samples: float) -> tuple[float, float]:
        """Forward and backward for so many samples; see the module for what is between and beyond."""
        beyond = max(samples / self.samples[-1], 1.0)
        forward_s = float(np.interp(samples, self.samples, self.forward_s))
        return forward_s * beyond, float(np.interp(samples, self.samples, self.backward_s)) * beyond


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """Measured operators by name; two profiles are equal only when they are the same object."""

    device: str
    operators: Mapping[str, Measured]


def read_profile(path: str | Path) -> Profile:
    """The profile in a file. Raises `WorkloadError` that names the file, the operator and what is wrong."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise WorkloadError(f"profile {path}: {error.strerror}: give a file that can be read") from error
    except ValueError as error:
        raise WorkloadError(f"profile {path} is no JSON: {error}") from error
    return profile_of(document, name=str(path))


def profile_of(document: Any, *, name: str = "profile") -> Profile:
    """The profile in a parsed document. Raises `WorkloadError`."""
    if not isinstance(document, dict) or document.get(_VERSION) != 1:
        raise WorkloadError(f'{name}: no profile of version 1: it begins with {{"{_VERSION}": 1, ...}}')
    operators = document.get("operators")
    if not isinstance(operators, dict):
        raise WorkloadError(f'{name}: "operators" must map operator names to measured times')
    return Profile(
        str(document.get("device", "")),
        {operator: _measured(entry, f"{name}: {operator}") for operator, entry in operators.items()},
    )


def _measured(entry: Any, name: str) -> Measured:
    if not isinstance(entry, dict):
        raise WorkloadError(f"{name}: give an object with samples, forward_s and backward_s")
    if "samples" not in entry:
        forward, backward = _numbers(
            [entry.get("forward_s_per_sample"), entry.get("backward_s_per_sample", 0.0)], name
        )
        # Through the origin: beyond the one tiny size everything is in proportion.
        tiny = 1e-9
        return Measured((tiny,), (forward * tiny,), (backward * tiny,))
    samples = _numbers(entry["samples"], f"{name}: samples")
    forward_s = _numbers(entry.get("forward_s"), f"{name}: forward_s")
    backward_s = _numbers(entry.get("backward_s", [0.0] * len(samples)), f"{name}: backward_s")
    if not samples or not len(samples) == len(forward_s) == len(backward_s):
        raise WorkloadError(
            f"{name}: samples, forward_s and backward_s must be lists of one length, at least 1"
        )
    if samples[0] <= 0 or any(later <= earlier for earlier, later in pairwise(samples)):
        raise WorkloadError(f"{name}: samples {list(samples)} must be above 0 and ascend")
    return Measured(samples, forward_s, backward_s)


def _numbers(values: Any, name: str) -> tuple[float, ...]:
    if not isinstance(values, list):
        raise WorkloadError(f"{name}: a list of numbers is missing")
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or value < 0:
            raise WorkloadError(f"{name}: {value!r} is no finite number of 0 or more")
    return tuple(map(float, values))
