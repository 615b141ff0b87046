"""`python -m lightning.cli`: the command line if the command `lightning` is not on the path."""

from __future__ import annotations

from lightning.cli import main

main()
