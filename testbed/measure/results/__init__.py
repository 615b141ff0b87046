"""Results of measurements: one database, and one directory per run."""
