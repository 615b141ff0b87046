"""Plan files: made from a workload and servers, written, read and checked."""
