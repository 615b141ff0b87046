"""The database of a laboratory: one schema, on SQLite in a file or on a PostgreSQL server."""
