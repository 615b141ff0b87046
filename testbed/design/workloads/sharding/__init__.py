"""Shardings of operators, and the data that passes between operators that are sharded differently."""
