"""How good is it: collectives, results of nccl-tests, what is kept of a run, reports."""
