"""Recovery from an operation that is unfinished or unwanted: resume, rollback, and the records that they read."""
