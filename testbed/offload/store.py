"""Profiles and their files. A hash of pipeline, model, batch size, workers and jobs names the file."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType
from typing import Any

from lightbed.output_file import replace_file
from testbed.errors import OffloadError
from testbed.offload.policy import Candidate, Decision, Metrics
from testbed.offload.stages import Pipeline, count_elements

_ADDRESS_PATTERN = re.compile(r" at 0x[0-9a-f]+")


@dataclass(frozen=True, slots=True)
class Profile:
    """Metrics, the decision, and the cost of measuring.

    Stalls are fractions of the time, before and after offloading. `rate_after` is in samples per second.
    """

    metrics: Metrics
    decision: Decision
    stall_before: float
    stall_after: float
    rate_after: float
    profiling_s: float
    profiling_share: float
    key: str = ""
    jobs: frozenset[str] = field(default_factory=frozenset)

    def as_json(self) -> dict[str, Any]:
        """Return the profile as plain values, for JSON. Rates are in samples/s, processor times in s per sample."""
        metrics = self.metrics
        return {
            "gthp": metrics.gthp,
            "lthp": metrics.lthp,
            "pcycle": metrics.pcycle,
            "candidates": {
                name: {"rthp": candidate.rthp, "ocycle": candidate.ocycle}
                for name, candidate in metrics.candidates.items()
            },
            "measured_workers": metrics.workers,
            **self.decision.as_json(),
            "stall_before": self.stall_before,
            "stall_after": self.stall_after,
            "rate_after": self.rate_after,
            "profiling_s": self.profiling_s,
            "profiling_share": self.profiling_share,
            "key": self.key,
            "jobs": sorted(self.jobs),
        }


def make_key(pipeline: Pipeline, model: Any, batch_size: int, worker_count: int, job_count: int) -> str:
    """Return the key of a measurement. `model` is a name, or the step itself."""
    key_parts = [
        compute_fingerprint(type(pipeline.dataset)),
        count_elements(pipeline.dataset),
        *(compute_fingerprint(part) for part in (pipeline.transform, pipeline.collate, model)),
        *(batch_size, worker_count, job_count),
    ]
    return hashlib.sha256(json.dumps(key_parts).encode()).hexdigest()[:32]


def compute_fingerprint(value: Any) -> str:
    """Return a text that changes with the code of a function or class, or with the `repr` of another object."""
    function = getattr(value, "__func__", value)
    code = getattr(function, "__code__", None)
    if isinstance(code, CodeType):
        return f"{function.__qualname__} {_describe_code(code)} {function.__defaults__!r}"
    if isinstance(value, type):
        methods = (value.__dict__[name] for name in sorted(value.__dict__))
        code_texts = [_describe_code(method.__code__) for method in methods if hasattr(method, "__code__")]
        return f"{value.__module__}.{value.__qualname__} {' '.join(code_texts)}"
    call = vars(type(value)).get("__call__")
    call_fingerprint = compute_fingerprint(call) if hasattr(call, "__code__") else ""
    return f"{type(value).__qualname__} {_ADDRESS_PATTERN.sub('', repr(value))} {call_fingerprint}"


def _describe_code(code: CodeType) -> str:
    constants = [
        _describe_code(constant) if isinstance(constant, CodeType) else repr(constant)
        for constant in code.co_consts
    ]
    return f"{code.co_code.hex()} {code.co_names} {constants}"


def save_profile(folder: Path, document: dict[str, Any], key: str) -> Path:
    """Write a profile atomically, and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{key}.json"
    with replace_file(path) as file:
        file.write(f"{json.dumps(document, indent=2)}\n".encode())
    return path


def load_profile(folder: Path, key: str) -> Profile | None:
    """Return the stored profile with this key, or None."""
    path = folder / f"{key}.json"
    return read_profile(path) if path.exists() else None


def read_profile(path: Path) -> Profile:
    """Read a profile from a file. Raises `OffloadError` if the file is unreadable or not a profile."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        candidates = {
            name: Candidate(entry["rthp"], entry["ocycle"]) for name, entry in document["candidates"].items()
        }
        metrics = Metrics(
            document["gthp"], document["lthp"], document["pcycle"], candidates, document["measured_workers"]
        )
        decision = Decision(
            document["choice"], document["ratio"], document["workers"], tuple(document["reasons"])
        )
        return Profile(
            metrics,
            decision,
            stall_before=document["stall_before"],
            stall_after=document["stall_after"],
            rate_after=document["rate_after"],
            profiling_s=document["profiling_s"],
            profiling_share=document["profiling_share"],
            key=document["key"],
            jobs=frozenset(document["jobs"]),
        )
    except OSError as error:
        raise OffloadError(
            f"{path} cannot be read ({error.strerror}): `testbed offload profile` writes it"
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise OffloadError(
            f"{path} is not a profile ({error}): `testbed offload profile` writes one"
        ) from error
