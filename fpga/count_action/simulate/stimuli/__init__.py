"""Stimuli and expectations: readers of files, an example generator, and the comparison with a run."""
