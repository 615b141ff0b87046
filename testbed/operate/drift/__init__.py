"""Losses over time: what each stretch of glass lost at every reading, and whether it changes."""
