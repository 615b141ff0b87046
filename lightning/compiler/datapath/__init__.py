"""Schedules, cycles and memory of a model on the datapath, and its count-action program."""
