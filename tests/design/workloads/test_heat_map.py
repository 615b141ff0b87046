"""The heat map: the same file from the same traffic, white where nothing is sent, named when it cannot be drawn."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from testbed.design.workloads.iteration.totals import draw_heat_map


def ring(nodes):
    matrix = np.zeros((nodes, nodes))
    matrix[np.arange(nodes), (np.arange(nodes) + 1) % nodes] = 1e9
    return matrix


@pytest.mark.long
def test_the_same_traffic_gives_the_same_file(tmp_path):
    pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'lightbed[testbed]'")
    one = draw_heat_map(ring(8), tmp_path / "one.svg", title="ring").read_bytes()
    two = draw_heat_map(ring(8), tmp_path / "two.svg", title="ring").read_bytes()
    other = draw_heat_map(ring(8).T, tmp_path / "other.svg", title="ring").read_bytes()
    assert one == two != other


@pytest.mark.long
def test_colours_are_where_bytes_are(tmp_path):
    pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'lightbed[testbed]'")
    from matplotlib.image import imread

    def coloured(matrix, name):
        plot = imread(draw_heat_map(matrix, tmp_path / name))[..., :3]
        plot = plot[:, : int(plot.shape[1] * 0.78)]  # without the colour bar
        return int((np.ptp(plot, axis=2) > 0.2).sum())

    nothing, some, all_of_it = (
        coloured(matrix, f"{number}.png")
        for number, matrix in enumerate((np.zeros((8, 8)), ring(8), np.full((8, 8), 1e6)))
    )
    assert nothing == 0
    assert some == pytest.approx(all_of_it / 8, rel=0.1)


def test_without_matplotlib_the_hint_is_reported(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ModuleNotFoundError, match=r"install the extra \[testbed\] of lightbed"):
        draw_heat_map(ring(4), tmp_path / "map.png")
