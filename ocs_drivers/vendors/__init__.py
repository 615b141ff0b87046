"""Drivers, a module or a folder for each vendor, with the same names of files in every folder.

    __init__     the factories that `ocs_drivers.families` names, one for each scheme of an address
    driver       the switch: reading, writing, ports; `tl1_driver` and so on where a vendor has several protocols
    codec        commands and replies, pure; `tl1_codec` and so on likewise

A folder has of these what it needs, and modules of its own for what only this vendor has; a vendor that only names its
commands is one module. Vendors do not import each other; what several of them share is in `banks` (switches made of 1xN
switches) and `tl1_driver`.
"""
