"""The object that behaves as QICK's `QickSoc`."""
