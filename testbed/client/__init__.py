"""The client of the service, which carries `testbed.Lab` and `--server` to it; scripts use `testbed.open_lab`.

Default token and URL are those of the environment variables LIGHTBED_TOKEN and LIGHTBED_SERVER.
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
