"""MixNet (SIGCOMM 2025), reproduced."""
