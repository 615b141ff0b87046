"""Programs of users on hosts of a lab: their light, their ranks, and their traffic."""
