"""nccl-tests and NCCL: launches on hosts with GPUs, parsers of their output, our timings in their format."""
