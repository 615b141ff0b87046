"""The `ethtool` of a simulated host: `-m` of the lab's NICs asks the simulation, all else is the machine's ethtool.

A veth pair has no module, so the machine's own ethtool could say nothing of it. The command stands in a folder of the
host's PATH; a host with a root of its own has it in /usr/local/sbin too, for programs that choose a PATH themselves.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

_SCRIPT = r"""#!/bin/bash
# The modules of @NICS@ are the simulation's; all else goes to the ethtool of the machine.
field() { [[ $reply =~ \"$1\":\ \"?([A-Za-z0-9+/=]*) ]] && printf %s "${BASH_REMATCH[1]}"; }
case ${1-} in
-m | --dump-module-eeprom | --module-info)
  for nic in @NICS@; do
    [ "${2-}" = "$nic" ] || continue
    words=$( (($# > 2)) && printf '%s\n' "${@:3}" | base64 -w0)
    if ! { exec 3<>/dev/tcp/@ADDRESS@/@PORT@; } 2>/dev/null; then
      echo "ethtool: the simulation of this lab does not answer at @ADDRESS@:@PORT@" >&2
      exit 1
    fi
    printf '{"do": "ethtool", "nic": "%s/%s", "words": "%s"}\n' @HOST@ "$nic" "$words" >&3
    IFS= read -r reply <&3
    field output | base64 -d
    field error | base64 -d >&2
    exit "$(field status)"
  done
  ;;
esac
for real in /usr/sbin/ethtool /sbin/ethtool /usr/bin/ethtool; do
  [ -x $real ] && exec $real "$@"
done
echo "ethtool: the machine has none: apt-get install --no-install-recommends ethtool" >&2
exit 127
"""


def ethtool_script(host: str, nics: Sequence[str], address: str, port: int) -> str:
    """Return the command of a host; the plant's control socket is at `address` and `port`."""
    values = {"NICS": shlex.join(nics), "HOST": shlex.quote(host), "ADDRESS": address, "PORT": str(port)}
    text = _SCRIPT
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    return text
