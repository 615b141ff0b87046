"""The lab as a Python object, for scripts and notebooks: `testbed.open_lab`, and `open_lab_async` for coroutines.

Methods have the options of the commands and return their documents, both for a lab file and for a lab of a service.
"""
