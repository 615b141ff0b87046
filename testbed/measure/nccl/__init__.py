"""nccl-tests and NCCL: launches on hosts with GPUs, parsers of the output, and our timings in the same format."""
