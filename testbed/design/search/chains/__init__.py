"""Markov chains over any objective: worker pools, checkpoints, and when to stop."""
