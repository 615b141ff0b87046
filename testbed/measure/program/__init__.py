"""Programs of users on hosts of a lab: their light, their ranks, and what they carried."""
