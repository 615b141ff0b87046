"""Parts that all drivers share.

driver            the base class of drivers
session           what it needs of a session, whatever the protocol
step_execution    one step as a table of states
planning          from what is held to what should be held; pure
transaction       an apply: read, compare, plan, execute step by step
reports           what became of every pair, and the error that says it best; pure
device_lock       one writer at a time
"""
