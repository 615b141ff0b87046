"""The same board under stock `pynq` without a network: a `pynq.Device` whose registers are simulated."""

from __future__ import annotations

from typing import Any

from pynq import Device

from sim.twins.board.space import AddressSpace, Slot


class SimulatedDevice(Device):  # type: ignore[misc]  # pynq has no types
    """Give it to `pynq.MMIO(base, length, device=...)` or make it `Device.active_device`."""

    def __init__(self, slot: Slot, name: str = "simulated") -> None:
        super().__init__(name)
        self.capabilities = {"REGISTER_RW": True}
        self.space = AddressSpace(slot)

    def read_registers(self, address: int, length: int) -> bytes:
        """Return words from a physical address on, least significant byte first."""
        words = (self.space.read32(address + place) for place in range(0, length, 4))
        return b"".join(word.to_bytes(4, "little") for word in words)[:length]

    def write_registers(self, address: int, data: bytes) -> None:
        """Put words at a physical address, least significant byte first."""
        for place in range(0, len(data), 4):
            self.space.write32(address + place, int.from_bytes(data[place : place + 4], "little"))

    def close(self) -> None:
        """Release the datapath."""
        self.space.close()

    def describe(self, name: str) -> dict[str, Any]:
        """Return the description for `pynq.DefaultIP`: the datapath as an IP of an overlay."""
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
