"""Plans: the decisions for a workload on servers, and the files that hold them."""
