"""Discovery of fibres: which NIC stands at which port of which switch, found by light and probe frames."""
