"""Drivers, one module or folder per vendor, with the same file names in every folder.

    __init__     the factories that `ocs_drivers.families` names, one for each scheme of an address
    driver       the switch: reading, writing, ports; `tl1_driver` and so on for a vendor with several protocols
    codec        commands and replies, pure; `tl1_codec` and so on likewise

A folder may omit some of these files and have further modules. A vendor that only defines its commands is one module.
Vendors do not import each other; several share `banks` (switches that consist of 1xN switches) and `tl1_driver`.
"""
