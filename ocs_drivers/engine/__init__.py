"""Parts that all drivers share.

driver            the base class of drivers
step_execution    the state machine that executes one step
planning          the steps from the current configuration to the target; pure
transaction       an apply: read, compare, plan, execute step by step
reports           the status of every pair, and the error that describes it; pure
device_lock       the lock that admits one writer at a time
"""
