"""Repairs for lost fibres: detours, links that move to other NICs, and the plan for both."""

from testbed.design.repair.plan import Detour, Repair, plan_repair

__all__ = ["Detour", "Repair", "plan_repair"]
