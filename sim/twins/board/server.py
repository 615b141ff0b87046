"""The board as a server: PYNQ.remote on a TCP port."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import Self

from sim.twins.board.space import AddressSpace, BoardFiles, Buffers, Slot

BOARD = "ZCU111 SIMULATED"


class BoardServer:
    """Serves from `start` to `close`; a context manager does both. Needs pynq 4 and its gRPC."""

    def __init__(self, slot: Slot, *, host: str = "127.0.0.1", port: int = 0, board: str = BOARD) -> None:
        self.space = AddressSpace(slot)
        self.files = BoardFiles(board, self.space.reload)
        self.buffers = Buffers()
        self._address = f"{host}:{port}"
        self._server = import_module("grpc").server(ThreadPoolExecutor(max_workers=4))
        self.port = 0
        """The port that is served, after `start`."""

    def start(self) -> None:
        """Accept clients. Raises OSError when the port is taken."""
        from pynq.remote import buffer_pb2_grpc, mmio_pb2_grpc, remote_device_pb2_grpc

        from sim.twins.board.services import BufferService, DeviceService, MmioService

        mmio_pb2_grpc.add_MmioServicer_to_server(MmioService(self.space), self._server)
        buffer_pb2_grpc.add_RemoteBufferServicer_to_server(BufferService(self.buffers), self._server)
        remote_device_pb2_grpc.add_RemoteDeviceServicer_to_server(DeviceService(self.files), self._server)
        try:
            self.port = self._server.add_insecure_port(self._address)
        except RuntimeError as error:
            raise OSError(f"{self._address} cannot be served: {error}") from error
        self._server.start()

    def close(self) -> None:
        """Refuse clients, and let go of the datapath."""
        self._server.stop(grace=None).wait()
        self.space.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
