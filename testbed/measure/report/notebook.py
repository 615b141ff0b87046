"""Documents of commands as drawings and tables for notebooks, in the style of the report.

Each document has its own frame, so that its style does not affect the notebook.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from html import escape
from itertools import groupby
from typing import Any

from testbed.measure.model import Timing
from testbed.measure.report.chart import Series, draw_bandwidth
from testbed.measure.report.markup import Markup, join, tag
from testbed.measure.report.style import PAGE_STYLE
from testbed.measure.report.tables import make_table
from testbed.measure.report.topology import draw_topology
from testbed.measure.results.records import StoredTopology

MAX_ROWS = 100
"""Largest number of rows in a table. The caption counts the rest."""
HEIGHT_PX = 480


def draw_document(document: Any, as_json: Callable[[Any], Any]) -> str:
    """Return a document as HTML: topologies and measurements as drawings, everything else as tables.

    `document` is a dataclass. `as_json` converts the value of a field to its JSON form.
    """
    title = type(document).__name__.removesuffix("Document")
    badge = tag("span", "SIMULATED", class_="badge") if getattr(document, "simulated", False) else ""
    parts = [tag("h3", badge, title), *_draw_figures(document), *_list_tables(document, as_json)]
    page = join(tag("style", Markup(PAGE_STYLE)), *parts)
    frame_style = f"width:100%;height:{HEIGHT_PX}px;border:0"
    return f'<iframe srcdoc="{escape(page)}" style="{frame_style}" title="{escape(title)}"></iframe>'


def _draw_figures(document: Any) -> Iterator[Markup]:
    if {"nodes", "degree", "strides", "links", "diameter"} <= set(_list_field_names(document)):
        topology = StoredTopology(
            name="topology",
            nodes=document.nodes,
            degree=document.degree,
            simplex=document.simplex,
            strides=tuple(document.strides),
            links=tuple(document.links),
            diameter=document.diameter,
            mean_hops=document.mean_hops,
            reason="",
        )
        yield draw_topology(topology, (), "topology")
    rows = [row for row in getattr(document, "results", ()) if isinstance(row, Timing)]
    if rows:
        groups = groupby(rows, key=lambda row: row.configuration)
        all_series = [Series.from_timings(name, timings) for name, timings in groups]
        yield draw_bandwidth(
            all_series, "bandwidth", title="Bus bandwidth", is_simulated=any(row.simulated for row in rows)
        )


def _list_tables(document: Any, as_json: Callable[[Any], Any]) -> Iterator[Markup]:
    """Yield a table of the document's fields that are not empty, and one table per list of records."""
    scalar_fields, list_fields = [], []
    for name in _list_field_names(document):
        value = getattr(document, name)
        if isinstance(value, tuple) and value and dataclasses.is_dataclass(value[0]):
            list_fields.append((name, value))
        elif name != "links" and value not in (None, ()):
            scalar_fields.append((name, _format_value(as_json(value))))
    rows = [
        tag("tr", tag("td", name, class_="text"), tag("td", value, class_="text"))
        for name, value in scalar_fields
    ]
    yield make_table("", ("", ""), rows, text_columns=2)
    for name, records in list_fields:
        yield _make_table(name, records, as_json)


def _make_table(name: str, records: Sequence[Any], as_json: Callable[[Any], Any]) -> Markup:
    columns = _list_field_names(records[0])
    rows = [
        tag(
            "tr",
            [
                tag("td", _format_value(as_json(getattr(record, column, ""))), class_="text")
                for column in columns
            ],
        )
        for record in records[:MAX_ROWS]
    ]
    suffix = f", and {len(records) - MAX_ROWS} more" if len(records) > MAX_ROWS else ""
    return make_table(f"{name.replace('_', ' ')}{suffix}", columns, rows, text_columns=len(columns))


def _list_field_names(record: Any) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(record))


def _format_value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)
