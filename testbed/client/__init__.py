"""The HTTP client of the service. `testbed.Lab` and `--server` use it; scripts call `testbed.open_lab` instead.

The defaults of token and URL are the environment variables LIGHTBED_TOKEN and LIGHTBED_SERVER.
"""

from testbed.client.asynchronous import AsyncClient, AsyncLab, connect_async
from testbed.client.calls import NotThroughService, ServiceRefused, ServiceUnreachable
from testbed.client.documents import Event, Run
from testbed.client.synchronous import Client, Lab, connect

__all__ = [
    "AsyncClient",
    "AsyncLab",
    "Client",
    "Event",
    "Lab",
    "NotThroughService",
    "Run",
    "ServiceRefused",
    "ServiceUnreachable",
    "connect",
    "connect_async",
]
