"""The engine of all changes: one table of states, durable records of steps, order, and what stops a change."""
