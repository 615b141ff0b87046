"""A simulated HUBER+SUHNER Polatis optical circuit switch, speaking SCPI, TL1 and REST."""

from sim.twins.families.polatis.twin import twin

__all__ = ["twin"]
