"""Discovery of fibres: finds by light and probe frames which NIC is connected to which switch port."""
