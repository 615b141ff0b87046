"""Stimuli and expectations: read from files, made as an example, and checked against a run."""
