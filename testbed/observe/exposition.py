"""Samples as the text that Prometheus reads, version 0.0.4 of its exposition format. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from testbed.observe.metric_list import BY_NAME, METRICS

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of a metric; `labels` are the values of its labels in the order of the table."""

    metric: str
    labels: tuple[str, ...]
    value: float

    def __post_init__(self) -> None:
        if len(self.labels) != len(BY_NAME[self.metric].labels):
            raise ValueError(f"{self.metric} has the labels {BY_NAME[self.metric].labels}, not {self.labels}")

    @property
    def labels_by_name(self) -> dict[str, str]:
        """The labels with their names."""
        return dict(zip(BY_NAME[self.metric].labels, self.labels, strict=True))


def exposition(samples: Iterable[Sample]) -> str:
    r"""Return the text; metrics in the order of the table, samples in that of their labels.

    >>> print(exposition([Sample("testbed_epoch", ('a "lab"',), 3.0)]), end="")
    # HELP testbed_epoch Number of the newest epoch.
    # TYPE testbed_epoch gauge
    testbed_epoch{lab="a \"lab\""} 3
    """
    by_metric: dict[str, list[Sample]] = {}
    for sample in samples:
        by_metric.setdefault(sample.metric, []).append(sample)
    return "".join(line for metric in METRICS for line in _lines(metric.name, by_metric.get(metric.name, [])))


def _lines(name: str, samples: list[Sample]) -> Iterator[str]:
    if not samples:
        return
    metric = BY_NAME[name]
    yield f"# HELP {name} {metric.help}\n# TYPE {name} {metric.kind}\n"
    for sample in sorted(samples, key=lambda one: one.labels):
        labels = (
            f'{label}="{_escaped(value)}"' for label, value in zip(metric.labels, sample.labels, strict=True)
        )
        yield f"{name}{{{','.join(labels)}}} {sample.value:.12g}\n"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
