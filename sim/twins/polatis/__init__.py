"""A simulated HUBER+SUHNER Polatis optical circuit switch, speaking SCPI and TL1."""

from sim.twins.polatis.twin import twin

__all__ = ["twin"]
