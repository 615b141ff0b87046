"""Commands of `testbed`. Each is declared once: a frozen dataclass of options, whose method `run` returns a document.

`declare` has the base class and the kinds of options, `groups` the options that several commands share, `documents` the
base of the results, `context` the context of a command. `table` lists the commands. The command line, requests to
the service and the page of commands are generated from the declarations.
"""
