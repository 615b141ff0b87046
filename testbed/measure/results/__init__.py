"""Results of measurements: one database and one directory a run."""
