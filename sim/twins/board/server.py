"""The board as a server: the gRPC services of PYNQ.remote for registers, buffers and files.

The modules of pynq define the messages. A nonempty field `msg` is an error, which the client raises.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import Any, Self

from pynq.remote import (
    buffer_pb2,
    buffer_pb2_grpc,
    mmio_pb2,
    mmio_pb2_grpc,
    remote_device_pb2,
    remote_device_pb2_grpc,
)

from fpga.bus import BusError
from sim.twins.board.memory import (
    AddressSpace,
    BoardFiles,
    BufferRequestError,
    Buffers,
    NoRegisterError,
    Slot,
)

BOARD_NAME = "ZCU111 SIMULATED"
_CHUNK_BYTES = 2 * 1024 * 1024


class BoardServer:
    """Server of a simulated board, and a context manager that starts and closes it. Needs pynq 4 and its gRPC."""

    def __init__(
        self, slot: Slot, *, host: str = "127.0.0.1", port: int = 0, board_name: str = BOARD_NAME
    ) -> None:
        self.space = AddressSpace(slot)
        self.files = BoardFiles(board_name, self.space.reload)
        self.buffers = Buffers()
        self._address = f"{host}:{port}"
        self._server = import_module("grpc").server(ThreadPoolExecutor(max_workers=4))
        self.port = 0
        """Port number, set by `start`."""

    def start(self) -> None:
        """Accept clients. Raise `OSError` if the port is in use."""
        mmio_pb2_grpc.add_MmioServicer_to_server(MmioService(self.space), self._server)
        buffer_pb2_grpc.add_RemoteBufferServicer_to_server(BufferService(self.buffers), self._server)
        remote_device_pb2_grpc.add_RemoteDeviceServicer_to_server(DeviceService(self.files), self._server)
        try:
            self.port = self._server.add_insecure_port(self._address)
        except RuntimeError as error:
            raise OSError(f"cannot serve {self._address}: {error}") from error
        self._server.start()

    def close(self) -> None:
        """Disconnect all clients, and release the datapath."""
        self._server.stop(grace=None).wait()
        self.space.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class MmioService(mmio_pb2_grpc.MmioServicer):  # type: ignore[misc]  # pynq has no types
    """Service for registers. Each mapping that a client makes has an identifier."""

    def __init__(self, space: AddressSpace) -> None:
        self._space = space
        self._mappings: dict[str, tuple[int, int]] = {}
        self._mapping_numbers = itertools.count(1)

    def get_mmio(self, request: Any, context: Any) -> Any:
        """Map `length` bytes from `base_addr`, and return the identifier of the mapping."""
        name = f"mmio-{next(self._mapping_numbers)}"
        self._mappings[name] = (request.base_addr, request.length)
        return mmio_pb2.GetMmioResponse(status=True, mmio_id=name)

    def read(self, request: Any, context: Any) -> Any:
        """Read up to 4 bytes of one word. The response message cannot hold more."""
        try:
            address = self._find_address(request.mmio_id, request.offset, request.length)
            word = self._space.read32(address)
        except (BusError, NoRegisterError, ValueError) as error:
            return mmio_pb2.ReadResponse(status=False, msg=str(error))
        return mmio_pb2.ReadResponse(status=True, data=word & ((1 << 8 * request.length) - 1))

    def write(self, request: Any, context: Any) -> Any:
        """Write words at consecutive addresses."""
        try:
            address = self._find_address(request.mmio_id, request.offset, 4)
            size, free_bytes = len(request.data), self._mappings[request.mmio_id][1] - request.offset
            if size % 4 or size > free_bytes:
                raise ValueError(
                    f"{size} bytes at offset {request.offset:#x}: only whole words, and at most {free_bytes} bytes"
                )
            for offset_in_data in range(0, len(request.data), 4):
                word = int.from_bytes(request.data[offset_in_data : offset_in_data + 4], "little")
                self._space.write32(address + offset_in_data, word)
        except (BusError, NoRegisterError, ValueError) as error:
            return mmio_pb2.WriteResponse(status=False, msg=str(error))
        return mmio_pb2.WriteResponse(status=True)

    def _find_address(self, name: str, offset: int, length: int) -> int:
        if name not in self._mappings:
            raise ValueError(f"no mapping {name!r}")
        base, size = self._mappings[name]
        if length > 4 or offset % 4 or not 0 <= offset < size:
            raise ValueError(
                f"{length} bytes at offset {offset:#x}: an access is one aligned word of 4 bytes below offset {size:#x}"
            )
        return base + offset


class BufferService(buffer_pb2_grpc.RemoteBufferServicer):  # type: ignore[misc]  # pynq has no types
    """Service for buffers. The client keeps a copy of each buffer."""

    def __init__(self, buffers: Buffers) -> None:
        self._buffers = buffers

    def allocate(self, request: Any, context: Any) -> Any:
        """Allocate a buffer, and return its identifier."""
        try:
            name = self._buffers.allocate(request.size, cacheable=request.cacheable)
        except BufferRequestError as error:
            return buffer_pb2.AllocateResponse(msg=str(error))
        return buffer_pb2.AllocateResponse(buffer_id=name)

    def write(self, request_iterator: Iterator[Any], context: Any) -> Any:
        """Write the bytes of a buffer from a stream of chunks."""
        written_bytes = 0
        try:
            for request in request_iterator:
                self._buffers.write(request.buffer_id, written_bytes, request.data)
                written_bytes += len(request.data)
        except BufferRequestError as error:
            return buffer_pb2.BufferWriteResponse(msg=str(error))
        return buffer_pb2.BufferWriteResponse()

    def read(self, request: Any, context: Any) -> Iterator[Any]:
        """Yield all bytes of a buffer in chunks."""
        try:
            data = self._buffers.read(request.buffer_id)
        except BufferRequestError as error:
            yield buffer_pb2.BufferReadResponse(msg=str(error))
            return
        for offset_in_data in range(0, len(data), _CHUNK_BYTES):
            yield buffer_pb2.BufferReadResponse(data=data[offset_in_data : offset_in_data + _CHUNK_BYTES])

    def freebuffer(self, request: Any, context: Any) -> Any:
        """Free a buffer."""
        try:
            self._buffers.free(request.buffer_id)
        except BufferRequestError as error:
            return buffer_pb2.FreeBufferResponse(msg=str(error))
        return buffer_pb2.FreeBufferResponse()

    def flush(self, request: Any, context: Any) -> Any:
        """Check that the buffer exists. There is nothing to flush, because the simulation has no cache."""
        return buffer_pb2.FlushResponse(msg=self._check_buffer(request.buffer_id))

    def invalidate(self, request: Any, context: Any) -> Any:
        """Check that the buffer exists, like `flush`."""
        return buffer_pb2.InvalidateResponse(msg=self._check_buffer(request.buffer_id))

    def physical_address(self, request: Any, context: Any) -> Any:
        """Return the address of a buffer for the programmable logic."""
        try:
            return buffer_pb2.AddressResponse(address=self._buffers.get_address(request.buffer_id))
        except BufferRequestError as error:
            return buffer_pb2.AddressResponse(msg=str(error))

    def virtual_address(self, request: Any, context: Any) -> Any:
        """Return the address of a buffer for the processor, which is the physical address."""
        return self.physical_address(request, context)

    def cacheable(self, request: Any, context: Any) -> Any:
        """Return whether a buffer was allocated as cacheable."""
        try:
            return buffer_pb2.CacheableResponse(cacheable=self._buffers.is_cacheable(request.buffer_id))
        except BufferRequestError as error:
            return buffer_pb2.CacheableResponse(msg=str(error))

    def _check_buffer(self, name: str) -> str:
        try:
            self._buffers.get_address(name)
        except BufferRequestError as error:
            return str(error)
        return ""


class DeviceService(remote_device_pb2_grpc.RemoteDeviceServicer):  # type: ignore[misc]  # pynq has no types
    """Service for files of the board. Clients load a bitstream by writing files."""

    def __init__(self, files: BoardFiles) -> None:
        self._files = files

    def existsfile(self, request: Any, context: Any) -> Any:
        """Return whether a file exists."""
        return remote_device_pb2.ExistsFileResponse(exists=self._files.exists(request.file_path))

    def readfile(self, request: Any, context: Any) -> Iterator[Any]:
        """Yield the content of a file in chunks, or nothing if the file does not exist."""
        data = self._files.read(request.file_path)
        for offset_in_data in range(0, len(data), _CHUNK_BYTES):
            yield remote_device_pb2.ReadFileResponse(
                data=data[offset_in_data : offset_in_data + _CHUNK_BYTES]
            )

    def writefile(self, request_iterator: Iterator[Any], context: Any) -> Any:
        """Write a file from a stream of chunks."""
        path, content = "", b""
        for request in request_iterator:
            path, content = request.file_path, content + request.data
        if path:
            self._files.write(path, content)
        return remote_device_pb2.WriteFileResponse()

    def set_bitstream_attrs(self, request: Any, context: Any) -> Any:
        """Accept and ignore the attributes of a bitstream. The files that follow contain the same information."""
        return remote_device_pb2.SetBitstreamAttrsResponse(status=True)

    def set_pl_clk(self, request: Any, context: Any) -> Any:
        """Accept and ignore a clock frequency. The simulated logic has no clock frequency."""
        return remote_device_pb2.SetPlClkResponse(status=True)

    def shutdown(self, request: Any, context: Any) -> Any:
        """Accept the request, and do nothing."""
        return remote_device_pb2.ShutdownResponse(status=True)
