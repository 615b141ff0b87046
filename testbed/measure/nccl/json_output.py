"""Parser of the JSON of nccl-tests (`-J`, document versions 1 to 3, also truncated), and our timings in that format.

Pitfalls of the format:

- Booleans are the words "true" and "false", and real booleans in our own documents. `okay` may be "unchecked".
- `root` is a padded word. Not-a-number is the word "nan" in quotes. Infinity is the word `inf` without quotes.
- `nwrong` is null if unchecked. `env` holds the whole environment of the user.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeGuard, TypeVar

from testbed.errors import ResultsError
from testbed.lab.model import Lab
from testbed.measure.model import Timing
from testbed.measure.nccl.table import (
    JSON_VERSION,
    IterationSpread,
    NcclDevice,
    NcclRow,
    NcclTable,
    NcclTiming,
    format_nccl_version,
)

T = TypeVar("T")
BYTES_PER_ELEMENT = 4
_BARE_NUMBER_PATTERN = re.compile(r"(?<=[:,\[])\s*-?(?:inf|nan)(?=\s*[,}\]])")
_TOKEN_PATTERN = re.compile(r'"(?:[^"\\]|\\.|\\\Z)*(?:"|\Z)|[\[\]{},]', re.DOTALL)


def parse_json(text: str, name: str = "output") -> NcclTable:
    """Parse a document. Error messages begin with `name`, the name of the file.

    Truncated or malformed parts become sentences in `problems`. Raises `ResultsError`, naming the line, if the text is
    not a document of nccl-tests or has no complete row.
    """
    document, is_truncated = _load(text, name)
    results = document.get("results")
    if not isinstance(results, list):
        if is_truncated and "nccl_version" in document:
            raise ResultsError(
                f"{name}:{_count_lines(text)}: cut off before the first result. Run the test again"
            )
        raise ResultsError(
            f"{name}:1: not an nccl-tests document: it has no list `results`. Give the file that a test "
            "wrote with -J, or its standard output"
        )
    problems = []
    if is_truncated:
        problems.append("the document is cut off: the run was ended, or had not finished")
    version = document.get("version")
    if isinstance(version, int) and version > JSON_VERSION:
        problems.append(f"document version {version} is newer than the {JSON_VERSION} known here")
    problems.extend(f"error: {error}" for error in _read_errors(document))
    own_problems = document.get("problems")
    if _is_list(own_problems):
        problems.extend(map(str, own_problems))
    rows = [row for index, entry in enumerate(results) if (row := _parse_row(entry, index, problems))]
    if not rows:
        reason = "; ".join(problems) or "`results` is empty"
        raise ResultsError(
            f"{name}:{_count_lines(text)}: no complete row of results: {reason}. Run the test again"
        )
    bounds_document, average_document = (
        _get_mapping(document, "out_of_bounds"),
        _get_mapping(document, "average_bus_bandwidth"),
    )
    is_in_bounds, is_average_ok = (
        _parse_boolean(bounds_document.get("okay")),
        _parse_boolean(average_document.get("okay")),
    )
    devices = tuple(_parse_devices(_get_mapping(document, "config").get("devices")))
    uses_cpu_time = any("cpu_time" in (entry.get("in_place") or ()) for entry in document["results"][:1])
    has_failed = bool(_read_errors(document)) or document.get("failed") is True
    version_code = document.get("nccl_version")
    return NcclTable(
        source="json",
        rows=tuple(rows),
        version=_convert_optional(str, document.get("nccl_tests_version")),
        nccl_version=format_nccl_version(version_code)
        if isinstance(version_code, int) and version_code > 0
        else _convert_optional(str, version_code),
        collective=_find_collective(document),
        devices=devices,
        time_kind="cpu" if uses_cpu_time else "gpu",
        average_busbw_gbytes_per_s=_parse_leniently(average_document.get("bandwidth")),
        average_ok=is_average_ok,
        out_of_bounds=_parse_integer(bounds_document.get("count")),
        out_of_bounds_ok=is_in_bounds,
        complete=not is_truncated
        and "average_bus_bandwidth" in document
        and document.get("complete") is not False,
        failed=has_failed or is_in_bounds is False or is_average_ok is False,
        problems=tuple(problems),
        json_path=_convert_optional(str, document.get("json_path")),
    )


def _count_lines(text: str) -> int:
    return text.count("\n") + 1


def _is_list(value: object) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, list | tuple)


def _load(text: str, name: str) -> tuple[dict[str, Any], bool]:
    """Return the document, and True if it was truncated. Raise `ResultsError` if it is not JSON."""
    text = _BARE_NUMBER_PATTERN.sub("null", text)
    make_texts: tuple[Callable[[], str], ...] = (lambda: text, lambda: close_document(text))
    first_error = None
    for index, make_text in enumerate(make_texts):
        try:
            document = json.loads(make_text())
        except (json.JSONDecodeError, RecursionError) as error:
            first_error = first_error or error
            continue
        if isinstance(document, dict):
            return document, index > 0
    line = first_error.lineno if isinstance(first_error, json.JSONDecodeError) else 1
    reason = first_error.msg if isinstance(first_error, json.JSONDecodeError) else "no object at the top"
    raise ResultsError(
        f"{name}:{line}: not a JSON document ({reason}). Give the file that a test wrote with -J"
    )


def close_document(text: str) -> str:
    """Complete a truncated document: cut it after its last complete element and close all brackets.

    >>> close_document('{"a":[{"b":1},{"b":2},{"b')
    '{"a":[{"b":1},{"b":2}]}'
    """
    closing_brackets: list[str] = []
    completed_text = ""
    for match in _TOKEN_PATTERN.finditer(text):
        symbol = match[0]
        if symbol in "[{":
            closing_brackets.append("]" if symbol == "[" else "}")
            completed_text = completed_text or symbol + closing_brackets[0]
        elif symbol in "]}":
            if not closing_brackets or closing_brackets.pop() != symbol:
                break
            completed_text = text[: match.end()] + "".join(reversed(closing_brackets))
        elif symbol == ",":
            completed_text = text[: match.start()] + "".join(reversed(closing_brackets))
    return completed_text


def _read_errors(document: Mapping[str, Any]) -> list[str]:
    errors = document.get("errors")
    return [str(error) for error in errors if error] if _is_list(errors) else []


def _parse_row(entry: object, index: int, problems: list[str]) -> NcclRow | None:
    """Parse one entry of `results`. If it is incomplete, add a problem and return None."""
    try:
        if not isinstance(entry, Mapping):
            raise TypeError("the entry is not an object")
        in_place = _parse_timing(entry, "in_place")
        if in_place is None:
            raise KeyError("in_place")
        return NcclRow(
            size_bytes=int(entry["size"]),
            count=int(entry["count"]),
            type=str(entry["type"]),
            redop=_convert_optional(str, entry.get("redop")),
            root=_convert_optional(int, entry.get("root")),
            out_of_place=_parse_timing(entry, "out_of_place"),
            in_place=in_place,
            timestamp=_convert_optional(str, entry.get("timestamp")),
            iterations=_convert_optional(int, entry.get("actual_iterations")),
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        problems.append(f"results[{index}] is incomplete and was skipped: {type(error).__name__} {error}")
        return None


def _convert_optional(convert: Callable[[Any], T], value: object) -> T | None:
    return None if value is None else convert(value)


def _parse_timing(entry: Mapping[str, Any], placement: str) -> NcclTiming | None:
    figures = entry[placement]
    if figures is None:
        return None
    wrong_count = _parse_number(figures["nwrong"])
    return NcclTiming(
        time_us=_parse_number(figures["cpu_time"] if "cpu_time" in figures else figures["time"]),
        algbw_gbytes_per_s=_parse_number(figures["alg_bw"]),
        busbw_gbytes_per_s=_parse_number(figures["bus_bw"]),
        wrong=None if wrong_count is None else int(wrong_count),
        largest_error=_parse_number(figures.get("max_error")),
        copy_gbytes_per_s=_parse_number(figures.get("copy_bw")),
        spread=_parse_spread(entry.get(f"{placement}_per_iter")),
    )


def _parse_spread(figures: Mapping[str, Any] | None) -> IterationSpread | None:
    if not figures:
        return None
    return IterationSpread(*(_parse_number(figures[key]) for key in ("min_us", "max_us", "p99_us", "cv_pct")))


def _parse_number(value: object) -> float | None:
    """Return a finite number, or None for null, not-a-number and infinity. Raises `TypeError` or `ValueError`."""
    if value is None:
        return None
    if not isinstance(value, int | float | str):
        raise TypeError(f"{value!r} is not a number")
    number = float(value)
    return number if math.isfinite(number) else None


def _parse_boolean(value: object) -> bool | None:
    """Parse nccl-tests' words for booleans. Return None for any other value, such as "unchecked"."""
    if isinstance(value, bool):
        return value
    return {"true": True, "false": False}.get(str(value).strip().lower())


def _get_mapping(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = document.get(key)
    return value if isinstance(value, Mapping) else {}


def _parse_leniently(value: object) -> float | None:
    try:
        return _parse_number(value)
    except (TypeError, ValueError):
        return None


def _parse_integer(value: object) -> int | None:
    number = _parse_leniently(value)
    return None if number is None else int(number)


def _find_collective(document: Mapping[str, Any]) -> str | None:
    """Return the name of the collective, from our own key or else from the program's name in the arguments."""
    if isinstance(document.get("collective"), str):
        return str(document["collective"])
    arguments = document.get("args")
    return str(arguments[0]).rpartition("/")[2] if _is_list(arguments) and arguments else None


def _parse_devices(entries: object) -> list[NcclDevice]:
    """Return the devices with complete descriptions. Skip the others rather than lose the results."""
    devices = []
    for entry in entries if isinstance(entries, list) else ():
        try:
            devices.append(
                NcclDevice(
                    rank=int(entry["rank"]),
                    group=_convert_optional(int, entry.get("group")),
                    pid=int(entry["pid"]),
                    host=str(entry["hostname"]),
                    device=int(entry["device"]),
                    bus_id=str(entry.get("device_hex", "")),
                    name=str(entry["device_info"]),
                )
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            continue
    return devices


def make_nccl_document(lab: Lab, timings: Sequence[Timing], versions: dict[str, str]) -> dict[str, Any]:
    """Return the rows of one configuration in the format of nccl-tests: bandwidths in GB/s, times in microseconds.

    nccl-tests has no fields for topology, configuration and SIMULATED: `experiment_name` and `lightbed` hold these.
    """
    is_measured = any(timing.iterations for timing in timings)
    wrong_count = sum(timing.wrong for timing in timings)
    okay_text = ("false" if wrong_count else "true") if is_measured else "unchecked"
    busbws_gbytes_per_s = [timing.busbw_mbps / 8000 for timing in timings]
    return {
        "version": JSON_VERSION,
        "args": [timings[0].collective, "-g", "1"] if timings else [],
        "env": [],
        "nccl_version": None,
        "lightbed": {
            "simulated": lab.simulated,
            "marking": "SIMULATED" if lab.simulated else "",
            "hosts": timings[0].hosts if timings else "",
            "represents_gbps": lab.link.represents_gbps,
            "rate_mbps": lab.link.rate_mbps,
            "versions": versions,
        },
        "config": _make_config(lab, timings, versions.get("collective_backend", ""), is_measured=is_measured),
        "results": [_make_result(timing) for timing in timings],
        "out_of_bounds": {"count": wrong_count, "okay": okay_text},
        "average_bus_bandwidth": {
            "bandwidth": sum(busbws_gbytes_per_s) / len(busbws_gbytes_per_s) if busbws_gbytes_per_s else 0.0,
            "okay": "unchecked",
        },
        "errors": "0",
        "end_time": datetime.now(UTC).isoformat(),
    }


def _make_config(lab: Lab, timings: Sequence[Timing], backend: str, *, is_measured: bool) -> dict[str, Any]:
    device = backend if is_measured else "modelled, nothing ran"
    sizes = [timing.size_bytes for timing in timings]
    return {
        "nthreads": 1,
        "ngpus": 1,
        "ranks": timings[0].ranks if timings else len(lab.hosts),
        "minimum_bytes": min(sizes, default=0),
        "maximum_bytes": max(sizes, default=0),
        "step_factor": 2,
        "warmup_iters": int(is_measured),
        "validation": int(is_measured),
        "devices": [
            {"rank": node, "group": 0, "pid": 0, "hostname": host.name, "device": 0, "device_info": device}
            for node, host in enumerate(lab.hosts)
        ],
    }


def _make_result(timing: Timing) -> dict[str, Any]:
    return {
        "size": timing.size_bytes,
        "count": max(1, timing.size_bytes // BYTES_PER_ELEMENT),
        "type": "float",
        "redop": "sum" if "reduce" in timing.collective else "none",
        "root": "-1",
        "out_of_place": None,
        "in_place": {
            "time": timing.time_us,
            "alg_bw": timing.algbw_mbps / 8000,
            "bus_bw": timing.busbw_mbps / 8000,
            "nwrong": timing.wrong,
        },
        "actual_iterations": timing.iterations,
        "experiment_name": f"{timing.topology}/{timing.configuration}",
    }
