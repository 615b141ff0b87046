"""Process groups of Chakra traces: in a file of the folder, as ASTRA-sim takes it, or in metadata of PyTorch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from testbed.design.workloads.imports import chakra_wire as wire
from testbed.design.workloads.imports.chakra_wire import Node
from testbed.errors import WorkloadError

GROUPS_FILE = "comm_group.json"


def read_groups(folder: Path, ranks: Sequence[Sequence[Node]]) -> dict[str, tuple[int, ...]]:
    """Return the members of each process group that is described. Raises `WorkloadError`, `OSError`."""
    everybody = tuple(range(len(ranks)))
    groups: dict[str, tuple[int, ...]] = {}
    for node in (
        node for nodes in ranks for node in nodes if node.kind == wire.METADATA and "pg_name" in node.inputs
    ):
        start, end = node.inputs.find("[{"), node.inputs.rfind("}]")
        text, where = node.inputs[start : end + 2].replace("\\", ""), f"node {node.number}"
        listed = _parsed(
            text, where, lambda found: {group["pg_name"]: group["ranks"] or everybody for group in found}
        )
        groups |= listed
    if (folder / GROUPS_FILE).exists():
        path = folder / GROUPS_FILE
        groups |= _parsed(path.read_text(encoding="utf-8"), str(path), dict)
    return groups


def _parsed(
    text: str, where: str, groups_of: Callable[[Any], dict[Any, Iterable[Any]]]
) -> dict[str, tuple[int, ...]]:
    """Return members of process groups by name. Raises `WorkloadError`."""
    try:
        groups = {str(name): tuple(map(int, ranks)) for name, ranks in groups_of(json.loads(text)).items()}
    except (ValueError, TypeError, KeyError) as error:
        raise WorkloadError(
            f'{where} does not describe process groups as JSON, say {{"1": [0, 1]}}: {error}'
        ) from error
    return groups
