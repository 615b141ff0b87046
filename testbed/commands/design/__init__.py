"""Commands that plan without a lab: topologies, strategies, fabrics, schedules, reproductions."""
