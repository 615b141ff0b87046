"""Banks of 1xN switches as one switch: the driver and the codec that several vendors share."""
