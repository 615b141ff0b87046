"""What all drivers have in common: planning, transactions, the base class of drivers, locks of devices."""
