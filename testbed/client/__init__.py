"""The client of the service, for scripts and notebooks: `connect`, and `connect_async` for coroutines.

    from testbed.client import connect

    with connect("http://lab:8080", token) as client:
        run = client.submit("testbed12", "apply", simplex=True, why="one-way rings")
        print(client.wait(run).result["verified"])

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
