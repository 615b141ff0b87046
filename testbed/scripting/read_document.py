"""Documents from JSON: an answer of a service becomes the dataclass that a local command returns."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


def read_document(kind: type[T], data: Mapping[str, Any]) -> T:
    """Return the document of a JSON object; keys that the document does not have are ignored.

    Raises `ValueError` if the data does not fit.
    """
    document: T = _read_record(kind, data)
    return document


def choose_document(kinds: tuple[type[T], ...], data: Mapping[str, Any]) -> type[T]:
    """Return the type that has the most keys in common with a JSON object, of the types whose required keys it has."""

    def rank_type(kind: type[Any]) -> tuple[bool, int]:
        required_keys, known_keys = _find_keys(kind)  # type: ignore[arg-type]  # a class is hashable
        return required_keys <= set(data), len(known_keys & set(data))

    return max(kinds, key=rank_type)


@cache
def _get_type_hints(kind: Any) -> Mapping[str, Any]:
    return get_type_hints(kind)


@cache
def _find_keys(kind: Any) -> tuple[frozenset[str], frozenset[str]]:
    """Return the keys that a document needs, and all keys that it has."""
    is_needed_by_key = {
        field.metadata.get("key", field.name): field.default is dataclasses.MISSING
        and field.default_factory is dataclasses.MISSING
        for field in dataclasses.fields(kind)
    }
    return frozenset(name for name, is_needed in is_needed_by_key.items() if is_needed), frozenset(
        is_needed_by_key
    )


def _read_record(kind: type[Any], data: Any) -> Any:
    if not isinstance(data, Mapping):
        raise ValueError(f"{kind.__name__} is a JSON object, not {type(data).__name__}")  # noqa: TRY004
    hints, values = _get_type_hints(kind), {}  # type: ignore[arg-type]
    for field in dataclasses.fields(kind):
        name = field.metadata.get("key", field.name)
        if name in data:
            values[field.name] = _read_value(hints[field.name], data[name])
    try:
        return kind(**values)
    except TypeError as error:
        raise ValueError(f"{kind.__name__}: {error}") from error


def _read_value(kind: Any, value: Any) -> Any:
    """Return a value of JSON as a type of a document: records, tuples, mappings and unions, to any depth."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return _read_union(parts, value)
    if origin is Literal or kind in (Any, object):
        return value
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _read_record(kind, value)
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        return {_read_key(parts[0], name): _read_value(parts[1], item) for name, item in value.items()}
    if (origin is tuple and len(parts) != 2) or (origin is tuple and parts[1] is not ...):
        return tuple(_read_value(part, item) for part, item in zip(parts, value, strict=True))
    if origin is not None and parts:
        items = tuple(_read_value(parts[0], each) for each in value)
        return list(items) if origin is list else items
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind is Path or (isinstance(kind, type) and issubclass(kind, Enum)):
        return kind(value)
    return datetime.fromisoformat(value) if kind is datetime else value


def _read_key(kind: Any, name: str) -> Any:
    return int(name) if kind is int else name


def _read_union(parts: tuple[Any, ...], value: Any) -> Any:
    if value is None and NoneType in parts:
        return None
    kinds = [part for part in parts if part is not NoneType]
    records: tuple[Any, ...] = tuple(part for part in kinds if dataclasses.is_dataclass(part))
    if len(records) > 1 and isinstance(value, Mapping):
        return _read_value(choose_document(records, value), value)
    for part in kinds:
        try:
            return _read_value(part, value)
        except (ValueError, TypeError, AttributeError):
            continue
    raise ValueError(f"{value!r} fits none of {', '.join(map(str, kinds))}")
