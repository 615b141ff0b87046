"""Files of a built folder, held against the text that they were built of."""
