"""Settings from a YAML file with strict keys, and the choice of where the workers run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from testbed.errors import OffloadError
from testbed.offload.feed import LOOK_AHEAD, WORKER_TIMEOUT_S, Rule
from testbed.offload.policy import MIN_SPEEDUP

DEFAULT_RUNS = Path("runs")


@dataclass(frozen=True, slots=True)
class Tls:
    """Certificate files with which trainer, scheduler and workers authenticate."""

    ca_file: Path
    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class Configuration:
    """Settings of a configuration file. The fields are its keys, with their defaults."""

    batches: int = 60
    rounds: int = 3
    warm_up: int = 3
    epochs: int = 10
    threshold: float = MIN_SPEEDUP
    look_ahead: int = LOOK_AHEAD
    ordered: bool = True
    patience_s: float = WORKER_TIMEOUT_S
    threads: int = 1
    store: str | None = None
    model: str = ""
    tls: Mapping[str, str] | None = None
    weights: Mapping[str, float] = field(default_factory=dict)

    def make_rule(self) -> Rule:
        """Return the rule of the loader before a decision: no offloading."""
        return Rule(ordered=self.ordered, look_ahead=self.look_ahead, patience_s=self.patience_s)

    def read_certificates(self) -> Tls | None:
        """Return the files under the key `tls`, or None. Raises `OffloadError` for missing or unknown keys there."""
        if self.tls is None:
            return None
        file_names = {setting.name for setting in fields(Tls)}
        _check_keys(self.tls, file_names, "tls")
        missing_names = sorted(file_names - set(self.tls))
        if missing_names:
            raise OffloadError(f"tls has no {', '.join(missing_names)}: give {', '.join(sorted(file_names))}")
        return Tls(**{name: Path(path) for name, path in self.tls.items()})


@dataclass(frozen=True, slots=True)
class Choice:
    """Place of the workers: behind a scheduler, on a lab's hosts, in this process, or by default in new processes."""

    scheduler: str | None = None
    lab: Path | None = None
    workers: int | None = None
    in_process: bool = False
    runs: Path = DEFAULT_RUNS

    def __post_init__(self) -> None:
        """Raise `OffloadError` if more than one place is chosen, or a number of workers together with a scheduler."""
        chosen_places = [self.scheduler is not None, self.lab is not None, self.in_process]
        if sum(chosen_places) > 1:
            raise OffloadError(
                "give only one of --scheduler, --lab and --in-process: each selects where the workers run"
            )
        if self.scheduler is not None and self.workers is not None:
            raise OffloadError(
                "--workers starts workers, but those of --scheduler already run: leave one out"
            )


def read_configuration(path: Path | None) -> Configuration:
    """Read the settings from a file, or return the defaults without a file.

    Raises `OffloadError` for an unreadable file, an unknown key, or a value of the wrong type.
    """
    if path is None:
        return Configuration()
    import yaml

    try:
        value_by_key = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (OSError, yaml.YAMLError) as error:
        raise OffloadError(f"{path} cannot be read: {error}") from error
    if not isinstance(value_by_key, dict):
        raise OffloadError(f"{path} is not a mapping of keys: see the table of keys in the documentation")
    _check_keys(value_by_key, {setting.name for setting in fields(Configuration)}, str(path))
    for setting in fields(Configuration):
        if setting.name in value_by_key:
            _check_type(
                path, setting.name, value_by_key[setting.name], getattr(Configuration(), setting.name)
            )
    return Configuration(**value_by_key)


def _check_keys(values: Mapping[str, Any], known_keys: set[str], source: str) -> None:
    for key in values:
        if key not in known_keys:
            raise OffloadError(f"{source}: unknown key {key!r}; known: {', '.join(sorted(known_keys))}")


def _check_type(path: Path, name: str, value: Any, default: Any) -> None:
    accepted_types: tuple[type, ...] = (type(default),)
    if isinstance(default, float):
        accepted_types = (int, float)
    elif default is None or isinstance(default, dict):
        accepted_types = (dict,) if name in {"tls", "weights"} else (str,)
    # bool is a subclass of int, so it needs a separate check.
    if not isinstance(value, accepted_types) or (isinstance(value, bool) and bool not in accepted_types):
        raise OffloadError(
            f"{path}: {name} is {value!r}: give {' or '.join(kind.__name__ for kind in accepted_types)}"
        )
