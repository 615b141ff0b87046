"""Settings in YAML with strict keys, and where workers come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from testbed.errors import OffloadError
from testbed.offload.feed import LOOK_AHEAD, PATIENCE_S, Rule
from testbed.offload.policy import THRESHOLD

RUNS = Path("runs")


@dataclass(frozen=True, slots=True)
class Tls:
    """Files of certificates with which trainer, scheduler and workers prove who they are."""

    ca_file: Path
    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class Configuration:
    """The keys of the file, with their defaults."""

    batches: int = 60
    rounds: int = 3
    warm_up: int = 3
    epochs: int = 10
    threshold: float = THRESHOLD
    look_ahead: int = LOOK_AHEAD
    ordered: bool = True
    patience_s: float = PATIENCE_S
    threads: int = 1
    store: str | None = None
    model: str = ""
    tls: Mapping[str, str] | None = None
    weights: Mapping[str, float] = field(default_factory=dict)

    def rule(self) -> Rule:
        """Return how the loader works, before anything is decided."""
        return Rule(ordered=self.ordered, look_ahead=self.look_ahead, patience_s=self.patience_s)

    def certificates(self) -> Tls | None:
        """Return the files of the TLS option, or None."""
        if self.tls is None:
            return None
        names = {each.name for each in fields(Tls)}
        _check_keys(self.tls, names, "tls")
        if set(self.tls) != names:
            raise OffloadError(f"tls needs {', '.join(sorted(names))}")
        return Tls(**{name: Path(path) for name, path in self.tls.items()})


@dataclass(frozen=True, slots=True)
class Choice:
    """Source of the workers: a scheduler, the hosts of a lab, or this process; without any of these, this machine."""

    scheduler: str | None = None
    lab: Path | None = None
    workers: int | None = None
    in_process: bool = False
    runs: Path = RUNS

    def __post_init__(self) -> None:
        """Raise `OffloadError` when two are named."""
        named = [self.scheduler is not None, self.lab is not None, self.in_process]
        if sum(named) > 1:
            raise OffloadError(
                "give one of --scheduler, --lab and --in-process: each says where the workers are"
            )
        if self.scheduler is not None and self.workers is not None:
            raise OffloadError(
                "--workers starts workers, but those of --scheduler already run: leave one out"
            )


def read_configuration(path: Path | None) -> Configuration:
    """Return the settings of a file, or the defaults. Raises `OffloadError` for unknown keys and wrong values."""
    if path is None:
        return Configuration()
    import yaml

    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (OSError, yaml.YAMLError) as error:
        raise OffloadError(f"{path} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise OffloadError(f"{path} is not a mapping of keys: see the table of keys in the documentation")
    _check_keys(found, {each.name for each in fields(Configuration)}, str(path))
    for each in fields(Configuration):
        if each.name in found:
            _check_kind(path, each.name, found[each.name], getattr(Configuration(), each.name))
    return Configuration(**found)


def _check_keys(found: Mapping[str, Any], known: set[str], where: str) -> None:
    for key in found:
        if key not in known:
            raise OffloadError(f"{where}: unknown key {key!r}; known: {', '.join(sorted(known))}")


def _check_kind(path: Path, name: str, value: Any, default: Any) -> None:
    kinds: tuple[type, ...] = (type(default),)
    if isinstance(default, float):
        kinds = (int, float)
    elif default is None or isinstance(default, dict):
        kinds = (dict,) if name in {"tls", "weights"} else (str,)
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise OffloadError(
            f"{path}: {name} is {value!r}: give {' or '.join(kind.__name__ for kind in kinds)}"
        )
