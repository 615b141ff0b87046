"""Files in a folder of Chakra traces, one per rank: finds, decompresses and reads them.

A trace may be in JSON, in one of three forms:

- MLCommons' jsonizer writes metadata and nodes one after the other, with the JSON keys of protocol buffers (`ctrlDeps`,
  `durationMicros`, 64-bit numbers as texts).
- MLCommons' feeder writes `{"workload_graph": [...]}`. Nodes have the keys `Id`, `NodeType` and `runtime`, and further
  keys for their attributes.
- PyTorch writes execution traces. The folder may also hold the profile of each rank, see `pytorch_trace`.
"""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import re
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from testbed.design.workloads.imports.chakra_wire import COLLECTIVE, Node, Value, read_nodes
from testbed.design.workloads.imports.pytorch_trace import (
    is_execution_trace,
    is_profile,
    read_execution_trace,
)
from testbed.errors import WorkloadError

_FILE_NAME = re.compile(r"(?P<name>.*?)\.?(?P<rank>\d+)\.(?P<form>et|json)(\.(gz|bz2|xz|zst))?")
_DECOMPRESSORS: dict[bytes, Callable[[bytes], bytes]] = {
    b"\x1f\x8b": gzip.decompress,
    b"BZh": bz2.decompress,
    b"\xfd7zXZ\x00": lzma.decompress,
}
_ZSTANDARD = b"\x28\xb5\x2f\xfd"

_TYPES = {
    "INVALID_NODE": 0,
    "METADATA_NODE": 1,
    "MEM_LOAD_NODE": 2,
    "MEM_STORE_NODE": 3,
    "COMP_NODE": 4,
    "COMM_SEND_NODE": 5,
    "COMM_RECV_NODE": 6,
    "COMM_COLL_NODE": COLLECTIVE,
}
_NODE_KEYS = {"Id", "Name", "NodeType", "ctrlDeps", "ctrl_deps", "data_deps", "dataDeps", "runtime"}


def is_trace_folder(path: str | Path) -> bool:
    """Return whether a path is a folder: a job of traces is named by its folder."""
    return Path(path).is_dir()


def read_ranks(folder: Path) -> list[list[Node]]:
    """Return the nodes of each rank. Raises `WorkloadError` for missing or invalid traces, and `OSError`."""
    profile_by_rank = {rank: path for path, rank in _list_profiles(folder)}
    ranks = []
    for rank, path in enumerate(list_rank_files(folder, profile_by_rank.values())):
        try:
            data = _decompress(path.read_bytes())
            if ".json" not in path.suffixes:
                ranks.append(read_nodes(data))
                continue
            profile = profile_by_rank.get(rank)
            ranks.append(
                read_json(data.decode("utf-8"), json.loads(_read_text(profile)) if profile else None)
            )
        except (ValueError, OSError, EOFError, RecursionError, zlib.error, lzma.LZMAError) as error:
            if isinstance(error, OSError) and error.errno:
                raise
            raise WorkloadError(f"{path} is not a Chakra execution trace: {error}") from error
    return ranks


def _read_text(path: Path) -> str:
    return _decompress(path.read_bytes()).decode("utf-8")


def _list_profiles(folder: Path) -> Iterator[tuple[Path, int]]:
    """Yield the profiles of a folder with their ranks, which are part of the file name, as for traces."""
    for path in sorted(folder.iterdir()):
        match = _FILE_NAME.fullmatch(path.name)
        if match and match["form"] == "json":
            with suppress(ValueError, OSError, EOFError, RecursionError, zlib.error, lzma.LZMAError):
                if is_profile(json.loads(_read_text(path))):
                    yield path, int(match["rank"])


def list_rank_files(folder: Path, excluded: Collection[Path] = ()) -> list[Path]:
    """Return the trace files of a folder in the order of ranks, without `excluded`.

    Raises `WorkloadError` unless each rank has one file, and all files have the same NAME.
    """
    files_of_ranks = [path for path in sorted(folder.iterdir()) if path not in excluded]
    matches = [(path, match) for path in files_of_ranks if (match := _FILE_NAME.fullmatch(path.name))]
    form = "et" if any(match["form"] == "et" for _, match in matches) else "json"
    matches_of_form = [(path, match) for path, match in matches if match["form"] == form]
    path_by_rank = {int(match["rank"]): path for path, match in matches_of_form}
    names = {match["name"] for _, match in matches_of_form}
    if (
        not path_by_rank
        or sorted(path_by_rank) != list(range(len(path_by_rank)))
        or len(names) > 1
        or len(path_by_rank) < len(matches_of_form)
    ):
        if len(names) > 1:
            contents = f"it has traces of {', '.join(sorted(names))}"
        else:
            contents = f"it has ranks {sorted(int(match['rank']) for _, match in matches_of_form)}"
        raise WorkloadError(f"{folder}: give one trace per rank, NAME.0.et, NAME.1.et and so on; {contents}")
    return [path_by_rank[rank] for rank in range(len(path_by_rank))]


def _decompress(data: bytes) -> bytes:
    if data.startswith(_ZSTANDARD):
        raise ValueError("it is compressed with Zstandard: decompress it with 'zstd -d' first")
    for magic, decompress in _DECOMPRESSORS.items():
        if data.startswith(magic):
            return decompress(data)
    return data


def read_json(text: str, profile: Any = None) -> list[Node]:
    """Return the nodes in the JSON text of a file. `profile` holds the times of a PyTorch execution trace.

    Raises `ValueError` for a text that is not a trace.
    """
    documents = list(_split_documents(text))
    if not documents or not all(isinstance(document, dict) for document in documents):
        raise ValueError("it is not a single JSON object")
    first_document = documents[0]
    if "workload_graph" in first_document:
        return [
            _read_feeder_node(node)
            for node in _check_list(first_document["workload_graph"], "workload_graph")
        ]
    if is_execution_trace(first_document):
        return read_execution_trace(first_document, profile)
    if is_profile(first_document):
        raise ValueError("it is a profile without the execution trace of its rank")
    begins_with_node = any(
        key in first_document for key in ("id", "name", "type")
    )  # JSON omits fields that are 0 or empty
    return [_read_node(document) for document in documents[0 if begins_with_node else 1 :]]


def _split_documents(text: str) -> Iterator[Any]:
    decoder, offset = json.JSONDecoder(), 0
    while offset < len(text):
        if text[offset].isspace():
            offset += 1
            continue
        document, offset = decoder.raw_decode(text, offset)
        yield document


def _read_node(document: Mapping[str, Any]) -> Node:
    kind = document.get("type", 0)
    type_number = _TYPES.get(kind) if isinstance(kind, str) else kind
    if not isinstance(type_number, int):
        raise ValueError(f"a node has the unknown type {kind!r}")  # noqa: TRY004 - of a file, not of a caller
    attributes = dict(_read_attribute(item) for item in _check_list(document.get("attr", []), "attr"))
    inputs = document.get("inputs", {})
    return Node(
        _check_integer(document.get("id", 0), "id"),
        str(document.get("name", "")),
        type_number,
        _read_numbers(document, "dataDeps", "data_deps"),
        _check_integer(document.get("durationMicros", document.get("duration_micros", 0)), "durationMicros"),
        {name: value for name, value in attributes.items() if value is not None},
        str(inputs.get("values", "")) if isinstance(inputs, dict) else "",
        _read_numbers(document, "ctrlDeps", "ctrl_deps"),
    )


def _read_attribute(document: Any) -> tuple[str, Value | None]:
    """Return the name and the value of an attribute. The value of a list is None."""
    if not isinstance(document, dict):
        raise ValueError("an attribute is not an object")  # noqa: TRY004 - of a file, not of a caller
    for key, value in document.items():
        kind = key.removesuffix("Val").removesuffix("_val")
        if kind != key and isinstance(value, str | int | float):
            is_integer = "int" in kind or "fixed" in kind
            return str(document.get("name", "")), _check_integer(value, key) if is_integer else value
    return str(document.get("name", "")), None


def _read_feeder_node(document: Any) -> Node:
    if not isinstance(document, dict) or "Id" not in document:
        raise ValueError("an entry of workload_graph is not a node with an Id")
    return Node(
        _check_integer(document["Id"], "Id"),
        str(document.get("Name", "")),
        _check_integer(document.get("NodeType", 0), "NodeType"),
        _read_numbers(document, "dataDeps", "data_deps"),
        _check_integer(document.get("runtime", 0), "runtime"),
        {
            key: value
            for key, value in document.items()
            if key not in _NODE_KEYS and isinstance(value, str | int | float)
        },
        control=_read_numbers(document, "ctrlDeps", "ctrl_deps"),
    )


def _read_numbers(document: Mapping[str, Any], *names: str) -> tuple[int, ...]:
    numbers = [
        _check_integer(item, name) for name in names for item in _check_list(document.get(name, []), name)
    ]
    return tuple(dict.fromkeys(numbers))


def _check_list(value: Any, name: str) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{name} is not a list")  # noqa: TRY004 - of a file, not of a caller
    return value


def _check_integer(value: Any, name: str) -> int:
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{name} is {value!r}, not an integer") from error
