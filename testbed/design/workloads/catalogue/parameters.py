"""Parameters of models: frozen dataclasses of integers and widths, checked on construction."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, TypeVar

from testbed.errors import WorkloadError

Widths = tuple[int, ...]
#: Parameters that are flags: 1 for yes, 0 for no.
FLAG_NAMES = frozenset({"decoder", "dot", "prefill", "decode"})
#: Parameters that may be 0. Besides flags, 0 means no total batch, embedding, experts or history.
NAMES_THAT_MAY_BE_ZERO = FLAG_NAMES | {"batch", "vocabulary", "experts", "history"}

P = TypeVar("P", bound="Parameters")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Base class of the parameters of a model: the number of samples of an iteration.

    `batch` is the total over all servers. If it is 0, each of the `devices_per_server` devices of a server has
    `batch_per_device` samples.
    """

    batch: int = 0
    batch_per_device: int = 1
    devices_per_server: int = 4

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            is_sequence = isinstance(field.default, tuple)
            _check(
                type(self).__name__.lower(), field.name, getattr(self, field.name), is_sequence=is_sequence
            )

    def count_samples(self, nodes: int) -> int:
        """Return the number of samples of an iteration on `nodes` servers."""
        return self.batch or self.batch_per_device * self.devices_per_server * nodes


def apply_changes(model: str, parameters: P, changes: Mapping[str, Any]) -> P:
    """Return the parameters with some values changed.

    Raises `WorkloadError` for unknown names and invalid values.
    """
    valid_names = {field.name for field in dataclasses.fields(parameters)}
    for name, value in changes.items():
        if name not in valid_names:
            close_matches = get_close_matches(name, valid_names, 1)
            hint = f"Did you mean {close_matches[0]!r}? " if close_matches else ""
            raise WorkloadError(
                f"{model} has no parameter {name!r}. {hint}It has {', '.join(sorted(valid_names))}"
            )
        _check(model, name, value, is_sequence=isinstance(getattr(parameters, name), tuple))
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in changes.items()
    }
    return dataclasses.replace(parameters, **values)


def read_settings(model: str, parameters: Parameters, settings: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the values of command-line settings: integers like `8`, or widths like `2048-2048-1`.

    Raises `WorkloadError` for other texts.
    """
    values: dict[str, Any] = {}
    for name, text in settings.items():
        try:
            numbers = tuple(int(digits) for digits in text.replace("_", "").split("-"))
        except ValueError:
            raise WorkloadError(
                f"{model}: {name}={text}: give an integer, or widths joined by dashes, as {name}=1024-1024-1"
            ) from None
        is_sequence = isinstance(getattr(parameters, name, None), tuple)
        values[name] = numbers if is_sequence or len(numbers) > 1 else numbers[0]
    return values


def _check(model: str, name: str, value: Any, *, is_sequence: bool) -> None:
    """Raise `WorkloadError` unless the value is an integer, or with `is_sequence` a sequence of integers, in range."""
    if isinstance(value, tuple | list) != is_sequence:
        form = "widths of layers, as (1024, 1024, 1)" if is_sequence else "one whole number"
        raise WorkloadError(f"{model}: {name} is {value!r}; give {form}")
    minimum = 0 if name in NAMES_THAT_MAY_BE_ZERO else 1
    for number in value if is_sequence else (value,):
        if isinstance(number, bool) or not isinstance(number, int):
            raise WorkloadError(f"{model}: {name} is {value!r}; give integers")
        if number < minimum:
            raise WorkloadError(f"{model}: {name} is {value!r}; it must be at least {minimum}")
        if name in FLAG_NAMES and number > 1:
            raise WorkloadError(f"{model}: {name} is {value!r}; give 1 (with) or 0 (without)")
    if is_sequence and not value:
        raise WorkloadError(f"{model}: {name} has no widths; name at least one layer")
