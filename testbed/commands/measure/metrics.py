"""`testbed metrics`: the metrics for Prometheus, printed once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from testbed.commands.context import CommandContext
from testbed.commands.declare import Command
from testbed.commands.documents import Document


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A value of a metric, with its labels."""

    metric: str
    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, kw_only=True)
class MetricsDocument(Document):
    """The samples, in the order in which they were read."""

    samples: tuple[Sample, ...]


@dataclass(frozen=True, kw_only=True)
class Metrics(Command[MetricsDocument]):
    """`testbed metrics`."""

    needs = "labs if any"
    lab_help = "Lab files. The switches of these labs are read too."
    role = "viewer"

    def run(self, context: CommandContext) -> MetricsDocument:
        """Read the metrics of the database, then those of the switches of each lab."""
        from testbed.lab.inventory import load_lab
        from testbed.lab.simulated.lifecycle import find_running_lab
        from testbed.observe.device_metrics import read_device_samples
        from testbed.observe.exposition import format_exposition
        from testbed.observe.stored_metrics import load_samples

        labs = [find_running_lab(load_lab(path)) for path in context.lab_files]
        samples = [
            *load_samples(context.runs_dir),
            *(sample for lab in labs for sample in read_device_samples(lab)),
        ]
        text = format_exposition(samples)
        context.say(*(text.removesuffix("\n").split("\n") if text else ()))
        return MetricsDocument(
            samples=tuple(
                Sample(metric=sample.metric_name, labels=sample.labels_by_name, value=sample.value)
                for sample in samples
            )
        )
