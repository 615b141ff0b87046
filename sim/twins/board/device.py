"""The simulated board as a `pynq.Device` in the same process, for unmodified `pynq` without a network."""

from __future__ import annotations

from typing import Any

from pynq import Device

from sim.twins.board.memory import AddressSpace, Slot


class SimulatedDevice(Device):  # type: ignore[misc]  # pynq has no types
    """A device with simulated registers, for `pynq.MMIO(base, length, device=...)` or `Device.active_device`."""

    def __init__(self, slot: Slot, name: str = "simulated") -> None:
        super().__init__(name)
        self.capabilities = {"REGISTER_RW": True}
        self.space = AddressSpace(slot)

    def read_registers(self, address: int, length: int) -> bytes:
        """Return `length` bytes from a physical address. Words are little-endian."""
        words = (self.space.read32(address + offset) for offset in range(0, length, 4))
        return b"".join(word.to_bytes(4, "little") for word in words)[:length]

    def write_registers(self, address: int, data: bytes) -> None:
        """Write bytes from a physical address on. Words are little-endian."""
        for offset in range(0, len(data), 4):
            self.space.write32(address + offset, int.from_bytes(data[offset : offset + 4], "little"))

    def close(self) -> None:
        """Release the datapath."""
        self.space.close()

    def describe(self, name: str) -> dict[str, Any]:
        """Return the description of the datapath as an IP of an overlay, for `pynq.DefaultIP`."""
        slot = self.space.slot
        return {
            "phys_addr": slot.base,
            "addr_range": slot.span_bytes,
            "type": "lightbed:user:count_action:1.0",
            "driver": None,
            "fullpath": name,
            "mem_id": "S_AXI",
            "device": self,
            "interrupts": {},
            "gpio": {},
            "parameters": {},
            "registers": {},
        }
