"""Commands of `testbed`, each declared once: a frozen dataclass of options with a method `run` and a typed document.

`declare` has the base class and what an option may be, `groups` the options that several commands share, `documents`
what commands answer, `place` where a command runs. `table` lists the commands. The command line, requests to the
service and the page of commands are made from the declarations.
"""
