"""The proof of a lab: evidence from switches and hosts, judged together, so that each cause is one finding."""
