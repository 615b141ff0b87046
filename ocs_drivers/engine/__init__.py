"""Parts that all drivers share: planning, transactions, the base class of drivers, locks of devices."""
