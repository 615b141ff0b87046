"""Simulated switches, one folder a family; `family_list` names them all."""

from sim.twins.families.family_list import FAMILIES, make_twin

__all__ = ["FAMILIES", "make_twin"]
