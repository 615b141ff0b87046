"""The page of models says what the catalogue builds."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from testbed.design.workloads.catalogue import make_parameters, names, presets, workload

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "models.md"


def row(name, preset):
    """Return size of a model as a row of the page's table."""
    job, given = workload(name, 1, preset=preset), make_parameters(name, preset)
    samples = (
        f"{given.batch}"
        if given.batch
        else f"{given.batch_per_device} × {given.devices_per_server} × servers"
    )
    flops = sum(operator.forward_flops for operator in job.operators)
    summed = sum(
        operator.gradient_bytes
        for operator in job.operators
        if operator.kind != "embedding" or "place" not in operator.ways
    )
    cells = (
        f"`{name}`",
        preset,
        samples,
        len(job.operators),
        size(flops),
        size(job.parameter_bytes),
        size(summed),
    )
    return "| " + " | ".join(map(str, cells)) + " |"


def size(number):
    """Return four digits and a letter: 5.120 G."""
    for letter, unit in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if number >= unit:
            return f"{number / unit:.4g} {letter}"
    return f"{number:.4g}"


@pytest.mark.parametrize("name", names())
def test_the_page_has_the_sizes_of_every_setting(name):
    text = PAGE.read_text(encoding="utf-8")
    missing = [line for preset in presets(name) if (line := row(name, preset)) not in text]
    assert missing == []


def test_the_page_has_no_other_rows():
    text = PAGE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w-]+)` \| ([\w.-]+) \|", text, re.MULTILINE)
    assert sorted(rows) == sorted((name, preset) for name in names() for preset in presets(name))


@pytest.mark.parametrize("name", names())
def test_the_page_names_every_parameter(name):
    section = PAGE.read_text(encoding="utf-8").partition("\n## Parameters\n")[2]
    named = set(re.findall(r"`(\w+)`", section))
    assert {field.name for field in dataclasses.fields(make_parameters(name))} <= named
