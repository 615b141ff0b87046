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


def read_document(document_type: type[T], data: Mapping[str, Any]) -> T:
    """Return the document of a JSON object; keys that the document does not have are ignored.

    Raises `ValueError` if the data does not fit.
    """
    document: T = _read_record(document_type, data)
    return document


def choose_document_type(document_types: tuple[type[T], ...], data: Mapping[str, Any]) -> type[T]:
    """Return the type that has the most keys in common with a JSON object, of the types whose required keys it has."""

    def rank_type(kind: type[Any]) -> tuple[bool, int]:
        required_keys, known_keys = _find_keys(kind)  # type: ignore[arg-type]  # a class is hashable
        return required_keys <= set(data), len(known_keys & set(data))

    return max(document_types, key=rank_type)


@cache
def _get_type_hints(record_type: Any) -> Mapping[str, Any]:
    return get_type_hints(record_type)


@cache
def _find_keys(record_type: Any) -> tuple[frozenset[str], frozenset[str]]:
    """Return the keys that a document needs, and all keys that it has."""
    is_needed_by_key = {
        field.metadata.get("key", field.name): field.default is dataclasses.MISSING
        and field.default_factory is dataclasses.MISSING
        for field in dataclasses.fields(record_type)
    }
    return frozenset(name for name, is_needed in is_needed_by_key.items() if is_needed), frozenset(
        is_needed_by_key
    )


def _read_record(record_type: type[Any], data: Any) -> Any:
    if not isinstance(data, Mapping):
        raise ValueError(f"{record_type.__name__} is a JSON object, not {type(data).__name__}")  # noqa: TRY004
    hints, values = _get_type_hints(record_type), {}  # type: ignore[arg-type]
    for field in dataclasses.fields(record_type):
        name = field.metadata.get("key", field.name)
        if name in data:
            values[field.name] = _read_value(hints[field.name], data[name])
    try:
        return record_type(**values)
    except TypeError as error:
        raise ValueError(f"{record_type.__name__}: {error}") from error


def _read_value(value_type: Any, value: Any) -> Any:
    """Return a value of JSON as a type of a document: records, tuples, mappings and unions, to any depth."""
    origin, type_arguments = get_origin(value_type), get_args(value_type)
    if origin in (Union, UnionType):
        return _read_union(type_arguments, value)
    if origin is Literal or value_type in (Any, object):
        return value
    if dataclasses.is_dataclass(value_type) and isinstance(value_type, type):
        return _read_record(value_type, value)
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        return {
            _read_key(type_arguments[0], name): _read_value(type_arguments[1], item)
            for name, item in value.items()
        }
    if (origin is tuple and len(type_arguments) != 2) or (origin is tuple and type_arguments[1] is not ...):
        return tuple(
            _read_value(type_argument, item)
            for type_argument, item in zip(type_arguments, value, strict=True)
        )
    if origin is not None and type_arguments:
        items = tuple(_read_value(type_arguments[0], each) for each in value)
        return list(items) if origin is list else items
    if value_type is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if value_type is Path or (isinstance(value_type, type) and issubclass(value_type, Enum)):
        return value_type(value)
    return datetime.fromisoformat(value) if value_type is datetime else value


def _read_key(key_type: Any, name: str) -> Any:
    return int(name) if key_type is int else name


def _read_union(member_types: tuple[Any, ...], value: Any) -> Any:
    if value is None and NoneType in member_types:
        return None
    kinds = [part for part in member_types if part is not NoneType]
    records: tuple[Any, ...] = tuple(part for part in kinds if dataclasses.is_dataclass(part))
    if len(records) > 1 and isinstance(value, Mapping):
        return _read_value(choose_document_type(records, value), value)
    for part in kinds:
        try:
            return _read_value(part, value)
        except (ValueError, TypeError, AttributeError):
            continue
    raise ValueError(f"{value!r} fits none of {', '.join(map(str, kinds))}")
