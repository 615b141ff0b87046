"""Commands of single devices: a switch by its address, a simulated lab."""
