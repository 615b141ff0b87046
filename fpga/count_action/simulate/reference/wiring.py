"""The lines of a datapath, looked up once: streams, bits of references, order of the modules, clears."""

from __future__ import annotations

from functools import cached_property

from fpga.count_action.graph import Graph
from fpga.count_action.model import ActionKind, Datapath, Ref
from fpga.count_action.ports import consumed_streams
from fpga.count_action.simulate.bit_slices import BitSlice, Key, sample_slice, stall_order


class Wiring:
    """Lines of a datapath that do not change from cycle to cycle."""

    def __init__(self, datapath: Datapath) -> None:
        self.datapath = datapath
        self.graph = Graph(datapath)
        self.order = stall_order(self.graph)
        self.inside = consumed_streams(datapath)
        self._slices: dict[Ref, BitSlice] = {}
        self._streams: dict[Ref, bool] = {}
        self._beats: dict[Ref, tuple[Ref, ...]] = {}

    def slice_of(self, ref: Ref) -> BitSlice:
        """Return where the bits of a sample, flag or number stand."""
        if ref not in self._slices:
            self._slices[ref] = sample_slice(self.graph, ref)
        return self._slices[ref]

    def is_stream(self, ref: Ref) -> bool:
        """Return whether a reference is a stream."""
        if ref not in self._streams:
            self._streams[ref] = self.graph.is_stream(ref)
        return self._streams[ref]

    def streams_of(self, ref: Ref) -> tuple[Ref, ...]:
        """Return the streams whose beats must move for a sample to be counted (R11)."""
        if ref not in self._beats:
            self._beats[ref] = self.graph.streams(ref)
        return self._beats[ref]

    @cached_property
    def clears(self) -> dict[Key, list[Key]]:
        """The counts whose fires clear a count."""
        found: dict[Key, list[Key]] = {}
        for module in self.datapath.modules:
            for action in module.drives(ActionKind.CLEAR_COUNT):
                if action.clears is not None:
                    found.setdefault(action.clears, []).append((module.name, action.on))
        return found
