"""Chart of bus bandwidth over message size (logarithmic) with link limits. Inline SVG, styled by the page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from math import log2

from testbed.measure.model import Timing
from testbed.measure.report.markup import Markup, tag
from testbed.measure.units import compute_round_ticks, format_number, format_seconds, format_size

_WIDTH, _HEIGHT = 930, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 66, 206, 26, 54
_PLOT_WIDTH = _WIDTH - _LEFT - _RIGHT
_PLOT_HEIGHT = _HEIGHT - _TOP - _BOTTOM
_MAX_SIZE_LABELS = 8
_LABEL_HEIGHT = 17.0
_BAND_LABEL_WIDTH = 150


@dataclass(frozen=True, slots=True)
class Series:
    """One line of the chart: a label, and the timings of a configuration in ascending order of size."""

    label: str
    timings: tuple[Timing, ...]

    @property
    def limit_mbps(self) -> float:
        """Link limit of the configuration, which is the same at every size."""
        return max(timing.limit_mbps for timing in self.timings)

    @classmethod
    def from_timings(cls, label: str, timings: Iterable[Timing]) -> Series:
        """Return a series in ascending order of size."""
        return cls(label, tuple(sorted(timings, key=lambda timing: timing.size_bytes)))


@dataclass(frozen=True, slots=True)
class _Axes:
    """Axes of the chart. They convert sizes and bandwidths to coordinates in pixels."""

    sizes: tuple[int, ...]
    rate_ticks: Sequence[float]
    rate_scale: float

    @property
    def _octaves(self) -> tuple[float, float]:
        low, high = log2(max(self.sizes[0], 1)), log2(max(self.sizes[-1], 1))
        return (low - 0.5, high + 0.5)

    def get_octave_x(self, octave: float) -> float:
        lowest_octave, highest_octave = self._octaves
        return (
            _LEFT
            + (min(max(octave, lowest_octave), highest_octave) - lowest_octave)
            / (highest_octave - lowest_octave)
            * _PLOT_WIDTH
        )

    def get_size_x(self, size_bytes: int) -> float:
        return self.get_octave_x(log2(max(size_bytes, 1)))

    def get_rate_y(self, mbps: float) -> float:
        return _TOP + (1 - mbps / self.rate_ticks[-1]) * _PLOT_HEIGHT


def draw_bandwidth(
    all_series: Sequence[Series],
    id_prefix: str,
    *,
    title: str,
    scale: float = 1.0,
    is_simulated: bool = False,
) -> Markup:
    """Draw the chart of several configurations. `id_prefix` makes element ids unique on the page.

    With a `scale` other than 1, the labels of the limits also show the rates that they represent. Raises `ValueError`
    if there are no timings.
    """
    if not any(series.timings for series in all_series):
        raise ValueError("no timings to draw")
    timings = [timing for series in all_series for timing in series.timings]
    largest_mbps = max(max(timing.busbw_mbps, timing.limit_mbps) for timing in timings)
    sizes = sorted({timing.size_bytes for timing in timings})
    axes = _Axes(tuple(sizes), compute_round_ticks(largest_mbps), scale)
    return tag(
        "svg",
        tag("title", title, id=f"{id_prefix}-title"),
        tag("desc", describe_chart(all_series), id=f"{id_prefix}-desc"),
        _draw_cpu_bands(all_series, axes),
        _draw_grid(axes),
        _draw_limits(all_series, axes),
        tag("g", (_draw_line(index, series, axes) for index, series in enumerate(all_series))),
        _draw_end_labels(all_series, axes),
        tag("text", "SIMULATED", x=_LEFT + _PLOT_WIDTH, y=_TOP - 12, class_="watermark")
        if is_simulated
        else "",
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        role="img",
        aria_labelledby=f"{id_prefix}-title {id_prefix}-desc",
        class_="chart",
    )


def describe_cpu_limits(all_series: Sequence[Series]) -> list[str]:
    """Return for each affected configuration a text with the sizes at which the hosts' processors were the limit."""
    sentences = []
    for series in all_series:
        runs = groupby(series.timings, key=lambda timing: timing.cpu_limited)
        sizes_of_runs = [[timing.size_bytes for timing in run] for is_limited, run in runs if is_limited]
        range_texts = [
            format_size(run[0]) if len(run) == 1 else f"{format_size(run[0])} to {format_size(run[-1])}"
            for run in sizes_of_runs
        ]
        if range_texts:
            sentences.append(f"{series.label} at {', '.join(range_texts)}")
    return sentences


def describe_chart(all_series: Sequence[Series]) -> str:
    """Return a text description of the chart, for screen readers."""
    sentences = []
    for series in all_series:
        best_timing, last_timing = (
            max(series.timings, key=lambda timing: timing.busbw_mbps),
            series.timings[-1],
        )
        sentences.append(
            f"{series.label}: {format_number(last_timing.busbw_mbps)} Mbit/s at {format_size(last_timing.size_bytes)}, "
            f"at most {format_number(best_timing.busbw_mbps)} at {format_size(best_timing.size_bytes)}, "
            f"link limit {format_number(series.limit_mbps)}."
        )
    return " ".join(sentences)


def _draw_cpu_bands(all_series: Sequence[Series], axes: _Axes) -> Markup:
    """Draw shaded bands behind the sizes at which the hosts' processors limited a configuration."""
    limited_sizes = {
        timing.size_bytes for series in all_series for timing in series.timings if timing.cpu_limited
    }
    bands = [_find_band(axes, size) for size in axes.sizes if size in limited_sizes]
    merged_bands: list[tuple[float, float]] = []
    for start, end in bands:
        # Bands less than half a pixel apart share a border.
        if merged_bands and abs(merged_bands[-1][1] - start) < 0.5:
            start = merged_bands.pop()[0]  # noqa: PLW2901 - the band grows
        merged_bands.append((start, end))
    return tag("g", (_draw_band(start, end) for start, end in merged_bands))


def _find_band(axes: _Axes, size: int) -> tuple[float, float]:
    """Return the x coordinates of a size's band, which reaches half way to the neighbouring sizes."""
    index = axes.sizes.index(size)
    octaves = [log2(max(size_bytes, 1)) for size_bytes in axes.sizes]
    lower_octave = (octaves[index - 1] + octaves[index]) / 2 if index else octaves[0] - 0.5
    upper_octave = (
        (octaves[index] + octaves[index + 1]) / 2 if index + 1 < len(octaves) else octaves[-1] + 0.5
    )
    return axes.get_octave_x(lower_octave), axes.get_octave_x(upper_octave)


def _draw_band(start: float, end: float) -> Markup:
    rectangle = tag("rect", x=start, y=_TOP, width=end - start, height=_PLOT_HEIGHT, class_="cpu-band")
    if end - start < _BAND_LABEL_WIDTH:
        return tag("g", rectangle)
    return tag(
        "g",
        rectangle,
        tag("text", "limited by the hosts’ CPU", x=(start + end) / 2, y=_TOP + 17, class_="band-label"),
    )


def _draw_grid(axes: _Axes) -> Markup:
    bottom_y, right_x = _TOP + _PLOT_HEIGHT, _LEFT + _PLOT_WIDTH
    label_step = -(-len(axes.sizes) // _MAX_SIZE_LABELS)
    grid_lines = [
        tag("line", x1=_LEFT, x2=right_x, y1=axes.get_rate_y(tick), y2=axes.get_rate_y(tick), class_="grid")
        for tick in axes.rate_ticks
    ]
    rate_labels = [
        tag("text", format_number(tick), x=_LEFT - 8, y=axes.get_rate_y(tick) + 4.5, class_="tick end")
        for tick in axes.rate_ticks
    ]
    tick_marks = [
        tag(
            "line",
            x1=axes.get_size_x(size),
            x2=axes.get_size_x(size),
            y1=bottom_y,
            y2=bottom_y + 5,
            class_="axis",
        )
        for size in axes.sizes
    ]
    size_labels = [
        tag("text", format_size(size), x=axes.get_size_x(size), y=bottom_y + 20, class_="tick middle")
        for size in list(reversed(axes.sizes))[::label_step]
    ]
    return tag(
        "g",
        (*grid_lines, *rate_labels, *tick_marks, *size_labels),
        tag("line", x1=_LEFT, x2=right_x, y1=bottom_y, y2=bottom_y, class_="axis"),
        tag("text", "bus bandwidth, Mbit/s", x=_LEFT - 56, y=_TOP - 12, class_="axis-title"),
        tag(
            "text",
            "message size (logarithmic)",
            x=_LEFT + _PLOT_WIDTH / 2,
            y=bottom_y + 42,
            class_="axis-title middle",
        ),
    )


def _draw_limits(all_series: Sequence[Series], axes: _Axes) -> Markup:
    """Draw one line per limit, in the colour of its configuration, or in grey if several configurations share it."""
    indices_by_limit: dict[float, list[int]] = {}
    for index, series in enumerate(all_series):
        indices_by_limit.setdefault(series.limit_mbps, []).append(index)
    right_x = _LEFT + _PLOT_WIDTH
    return tag(
        "g",
        (
            tag(
                "line",
                x1=_LEFT,
                x2=right_x,
                y1=axes.get_rate_y(limit_mbps),
                y2=axes.get_rate_y(limit_mbps),
                class_=f"limit c{indices[0] % 8}" if len(indices) == 1 else "limit shared",
            )
            for limit_mbps, indices in indices_by_limit.items()
        ),
    )


def _draw_line(index: int, series: Series, axes: _Axes) -> Markup:
    points = [
        (axes.get_size_x(timing.size_bytes), axes.get_rate_y(timing.busbw_mbps)) for timing in series.timings
    ]
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    marks = [
        _draw_point(index, x, y, timing, series.label)
        for (x, y), timing in zip(points, series.timings, strict=True)
    ]
    return tag("g", tag("path", d=path, class_=f"line c{index % 8}"), marks)


def _draw_point(index: int, x: float, y: float, timing: Timing, label: str) -> Markup:
    """Draw a point. Its shape distinguishes configurations without colour; a hollow point is limited by the CPU."""
    note = ", limited by the hosts’ CPU" if timing.cpu_limited else ""
    tooltip = (
        f"{label}, {format_size(timing.size_bytes)}: {format_number(timing.busbw_mbps)} Mbit/s, "
        f"{format_seconds(timing.time_us / 1e6)}{note}"
    )
    css_classes = f"mark c{index % 8}{' hollow' if timing.cpu_limited else ''}"
    return tag("g", tag("title", tooltip), _draw_shape(index, x, y, css_classes))


def _draw_shape(index: int, x: float, y: float, css_classes: str) -> Markup:
    shapes = (
        "",
        f"M{x - 4:.1f} {y - 4:.1f}h8v8h-8z",
        f"M{x:.1f} {y - 5.6:.1f}l5.6 5.6l-5.6 5.6l-5.6 -5.6z",
        f"M{x:.1f} {y - 5.2:.1f}l5.4 9.2h-10.8z",
    )
    outline = shapes[index % len(shapes)]
    if not outline:
        return tag("circle", cx=x, cy=y, r=4.4, class_=css_classes)
    return tag("path", d=outline, class_=css_classes)


def _draw_end_labels(all_series: Sequence[Series], axes: _Axes) -> Markup:
    """Draw the labels at the right: configurations beside their last points, link limits beside their lines."""
    labels: list[tuple[float, str, str]] = []
    for index, series in enumerate(all_series):
        last_timing = series.timings[-1]
        labels.append((axes.get_rate_y(last_timing.busbw_mbps), series.label, f"end-label c{index % 8}"))
    for limit_mbps in sorted({series.limit_mbps for series in all_series}):
        represented_text = (
            f" ≙ {format_number(limit_mbps * axes.rate_scale / 1000)} Gb/s" if axes.rate_scale != 1 else ""
        )
        labels.append(
            (
                axes.get_rate_y(limit_mbps),
                f"limit {format_number(limit_mbps)}{represented_text}",
                "limit-label",
            )
        )
    x = _LEFT + _PLOT_WIDTH + 12
    return tag(
        "g",
        (
            tag("text", text, x=x, y=y + 4.5, class_=css_classes)
            for y, text, css_classes in _spread_labels(labels)
        ),
    )


def _spread_labels(labels: list[tuple[float, str, str]]) -> list[tuple[float, str, str]]:
    """Move labels apart. They keep their order from top to bottom and stay inside the plot."""
    sorted_labels = sorted(labels)
    ys = [y for y, _, _ in sorted_labels]
    for index in range(1, len(ys)):
        ys[index] = max(ys[index], ys[index - 1] + _LABEL_HEIGHT)
    overflow_px = ys[-1] - (_TOP + _PLOT_HEIGHT)
    if overflow_px > 0:
        ys[-1] -= overflow_px
        for lower_index, upper_index in pairwise(range(len(ys) - 1, -1, -1)):
            ys[upper_index] = min(ys[upper_index], ys[lower_index] - _LABEL_HEIGHT)
    return [(y, text, css_classes) for y, (_, text, css_classes) in zip(ys, sorted_labels, strict=True)]
