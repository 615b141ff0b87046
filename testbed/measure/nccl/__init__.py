"""nccl-tests and NCCL: launched on hosts with GPUs, their output read, our timings in their format."""
