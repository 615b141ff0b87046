"""Markov chains over any problem: worker pools, checkpoints, and when to stop."""
