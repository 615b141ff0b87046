"""AllReduces and exchanges, measured on the hosts of a lab or modelled without hosts."""

from testbed.measure.collectives.ranks import Ranks, run_collectives
from testbed.measure.collectives.spec import CollectiveSpec, Configuration

__all__ = ["CollectiveSpec", "Configuration", "Ranks", "run_collectives"]
