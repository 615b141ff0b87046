"""Plans: the decisions for a workload on servers, and the plan files."""
