"""Commands that plan and simulate without a lab: topologies, strategies, fabrics, schedules, reproductions."""
