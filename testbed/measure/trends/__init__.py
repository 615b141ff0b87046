"""Series over runs: where they change, by how much, how sure that is, and which change of the lab came before."""
