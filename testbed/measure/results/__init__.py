"""Results of measurements: a database, and one directory per run."""
