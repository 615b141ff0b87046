"""Proofs of the hand-written blocks in `fpga/rtl`: each block next to its checks, for all inputs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fpga.hdl.design import find_instances

RTL = Path(__file__).resolve().parents[1] / "rtl"
CHECKS_FOLDER = Path(__file__).resolve().parent / "checks"

_PORT_PATTERN = re.compile(r"(input|output)\s+logic\s*((?:\[[^\n]*\])?)\s*(\w+)\s*[,\n]")


@dataclass(frozen=True)
class BlockProof:
    """A block, and the parameters for which it is proven.

    `hidden_wires` maps ports of the checks to the registers of the block that these ports read: (path in the block,
    range). `extra_connections` are other connections of the checks. `depth` is the number of cycles of the induction.
    It must exceed the length of a pipeline.
    """

    block: str
    parameters: Mapping[str, object] = field(default_factory=dict)
    hidden_wires: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    extra_connections: Mapping[str, str] = field(default_factory=dict)
    depth: int = 3

    @property
    def title(self) -> str:
        """Block and parameters as one line of text."""
        values = ", ".join(f"{name} {value}" for name, value in self.parameters.items())
        return f"{self.block} ({values})" if values else self.block


def _make_level(**parameters: object) -> BlockProof:
    return BlockProof("count_action_level", parameters, extra_connections={"status_i": "1'b0"})


def _make_sum(**parameters: object) -> BlockProof:
    is_accumulating = parameters["Accumulate"] == "1'b1"
    hidden_wires = {"terms_i": ("terms", "[Samples*Width-1:0]")}
    hidden_wires |= {"base_i": ("sum_q", "[Width-1:0]")} if is_accumulating else {}
    extra_connections = {"check_i": "1'b1"} if is_accumulating else {"check_i": "1'b1", "base_i": "'0"}
    return BlockProof("count_action_sum", parameters, hidden_wires, extra_connections)


def _make_extreme(**parameters: object) -> BlockProof:
    is_accumulating = parameters["Accumulate"] == "1'b1"
    ranges_by_port = {"any_i": "", **dict.fromkeys(["best_i", "index_i", "counted_i"], "[Width-1:0]")}
    hidden_wires = {port: (f"{port[:-2]}_q", bit_range) for port, bit_range in ranges_by_port.items()}
    extra_connections = (
        {"check_i": "1'b1"} if is_accumulating else {"check_i": "1'b1", **dict.fromkeys(ranges_by_port, "'0")}
    )
    return BlockProof(
        "count_action_extreme", parameters, hidden_wires if is_accumulating else {}, extra_connections
    )


def _make_memory(**parameters: object) -> BlockProof:
    hidden_wires = {"watch_i": ("watch", "[AddressWidth-1:0]"), "watched_i": ("watched", "[Width-1:0]")}
    return BlockProof("count_action_memory", parameters, hidden_wires)


def _make_product(**parameters: object) -> BlockProof:
    return BlockProof("float_product", parameters, depth=9)


def _make_steps(**parameters: object) -> BlockProof:
    return BlockProof("float_steps", parameters, depth=12)


def _make_reader(**parameters: object) -> BlockProof:
    counts = dict.fromkeys(["ordered", "bursts"], "[PlaceWidth:0]")
    pointers = dict.fromkeys(["write", "read"], "[PlaceWidth-1:0]")
    ranges_by_register = {**counts, **pointers, "left": "[23:0]"}
    hidden_wires = {f"{name}_i": (f"{name}_q", bit_range) for name, bit_range in ranges_by_register.items()}
    return BlockProof("burst_reader", parameters, hidden_wires)


def _make_queue(**parameters: object) -> BlockProof:
    pointers = {**{f"{name}_i": f"{name}_q" for name in ("write", "end", "read")}, "watch_i": "u_beats.watch"}
    hidden_wires = {port: (path, "[PlaceWidth-1:0]") for port, path in pointers.items()}
    hidden_wires |= {"dropping_i": ("dropping_q", ""), "watched_i": ("u_beats.watched", "[Width-1:0]")}
    return BlockProof("frame_queue", parameters, hidden_wires, depth=4)


_LANE_PARAMETERS = {"Lanes": 4, "Width": 4}
_FLAGS = ("waits", "first", "last", "begins", "new", "ended", "plain", "frame_plain", "claimed")

BLOCK_PROOFS = (
    BlockProof("count_action", {"Width": 16, "IncrementWidth": 5, "TargetWidth": 16}),
    BlockProof("count_action", {"Width": 4, "IncrementWidth": 6, "TargetWidth": 8}),
    BlockProof("count_action", {"Width": 32, "IncrementWidth": 1, "TargetWidth": 16}),
    BlockProof("count_action", {"Width": 2, "IncrementWidth": 1, "TargetWidth": 3}),
    BlockProof(
        "count_action",
        {"Width": 4, "IncrementWidth": 6, "TargetWidth": 8, "AtLeast": "1'b1", "Carry": "1'b1"},
    ),
    BlockProof("count_action", {"Width": 6, "IncrementWidth": 3, "TargetWidth": 6, "AtLeast": "1'b1"}),
    BlockProof(
        "count_action",
        {"Width": 4, "IncrementWidth": 1, "TargetWidth": 5, "AtLeast": "1'b1", "Carry": "1'b1"},
    ),
    _make_level(AddendWidth=4, TargetWidth=16),
    _make_level(AddendWidth=6, TargetWidth=4),
    _make_level(AddendWidth=4, TargetWidth=5, AtLeast="1'b1"),
    BlockProof(
        "count_action_up_down",
        {
            "Width": 6,
            "IncrementWidth": 3,
            "TargetWidth": 6,
            "BoundWidth": 4,
            "AtLeast": "1'b1",
            "Carry": "1'b1",
        },
    ),
    BlockProof("count_action_up_down", {"Width": 4, "IncrementWidth": 3, "TargetWidth": 5, "BoundWidth": 6}),
    BlockProof("count_action_targets", {"Width": 40, "Reset": "40'h12_3456_789a"}),
    BlockProof("count_action_ones", {"Bits": 16, "Width": 5}),
    BlockProof("count_action_ones", {"Bits": 5, "Width": 4}),
    BlockProof("count_action_beat", {"Width": 129}),
    BlockProof("count_action_beat", {"Width": 16}),
    BlockProof(
        "count_action_buffer",
        {"Width": 8},
        hidden_wires={"full_i": ("full_q", ""), "second_i": ("second_q", "[Width-1:0]")},
    ),
    _make_sum(
        Samples=4, SampleWidth=4, SampleSigned="1'b1", Width=8, Accumulate="1'b1", Shift=2, Signed="1'b1"
    ),
    _make_sum(
        Samples=4, SampleWidth=4, SampleSigned="1'b0", Width=8, Accumulate="1'b1", Shift=2, Signed="1'b0"
    ),
    _make_sum(
        Samples=4, SampleWidth=4, SampleSigned="1'b1", Width=6, Accumulate="1'b0", Shift=0, Signed="1'b1"
    ),
    _make_extreme(
        Samples=3, Width=4, Accumulate="1'b1", Shift=1, Signed="1'b1", Minimum="1'b0", WithIndex="1'b1"
    ),
    _make_extreme(
        Samples=2, Width=4, Accumulate="1'b1", Shift=0, Signed="1'b0", Minimum="1'b1", WithIndex="1'b0"
    ),
    _make_extreme(
        Samples=4, Width=3, Accumulate="1'b0", Shift=0, Signed="1'b1", Minimum="1'b1", WithIndex="1'b1"
    ),
    BlockProof("count_action_flag", {"ClearWins": "1'b1"}),
    BlockProof("count_action_flag"),
    BlockProof("count_action_store", {"Width": 4}),
    _make_memory(Words=5, Width=3, AddressWidth=3),
    _make_memory(Words=2, Width=2, AddressWidth=1),
    BlockProof("count_action_advance", {"Width": 2, "Last": "2'd1"}),
    BlockProof("adder_tree", {"Stages": 2, "Width": 4}),
    BlockProof("signed_products", _LANE_PARAMETERS),
    BlockProof("pairwise_means", {"Positions": 8, "Distance": 2, "Width": 4}),
    BlockProof("preamble_match", {**_LANE_PARAMETERS, "Published": "1'b0"}),
    BlockProof("preamble_match", {**_LANE_PARAMETERS, "Published": "1'b1"}),
    BlockProof("highest_bit", {"Width": 16, "PlaceWidth": 4}),
    BlockProof("normalised_activation", {"Width": 16, "PlaceWidth": 4}),
    BlockProof("normalised_activation", {"Width": 20, "PlaceWidth": 5}),
    BlockProof(
        "running_maximum",
        {"Width": 4, "IndexWidth": 4},
        hidden_wires={"any_i": ("any_q", "")},
    ),
    BlockProof("ones_complement_sum", {"Words": 4, "Width": 4, "CarryBits": 2}),
    BlockProof("ones_complement_sum", {"Words": 8, "Width": 3, "CarryBits": 3}),
    BlockProof(
        "frame_extent",
        {"Bytes": 4, "Places": 2, "Limit": 10, "LengthWidth": 5, "BeatWidth": 2},
        hidden_wires={"rest_i": ("rest_q", "[LengthWidth-1:0]"), "next_i": ("beat_q", "[BeatWidth-1:0]")},
    ),
    BlockProof("packet_class"),
    BlockProof("packet_verdict"),
    BlockProof(
        "answer_turns",
        {"Prepare": 2},
        hidden_wires={"prepare_i": ("prepare_q", "[Prepare-1:0]"), "idle_i": ("idle_q", "")},
    ),
    _make_product(Whole=6, Mantissa=5, Exponent=4),
    _make_product(Whole=8, Mantissa=8, Exponent=5),
    _make_steps(Bits=4, Mantissa=7, Exponent=4),
    _make_steps(Bits=2, Mantissa=4, Exponent=3),
    _make_reader(Depth=64, PlaceWidth=6),
    _make_queue(Width=2, PlaceWidth=2),
    BlockProof(
        "packet_request",
        hidden_wires={
            "take_i": ("take", ""),
            **{f"{name}_i": (f"{name}_q", "") for name in _FLAGS},
            "line_i": ("ended_line_q", "[4:0]"),
            "plains_i": ("plain_line_q", "[4:0]"),
            "owed_i": ("owed_q", "[4:0]"),
            "write_i": ("u_replies.write_q", "[3:0]"),
            "read_i": ("u_replies.read_q", "[3:0]"),
        },
    ),
    BlockProof(
        "packet_answer",
        hidden_wires={
            **{
                f"{name}_i": (name, "")
                for name in ("choose", "answering", "begins", "sends", "ready", "first", "last")
            },
            "idle_i": ("u_turns.idle_q", ""),
            "prepare_i": ("u_turns.prepare_q", "[2:0]"),
            "full_i": ("u_buffer.full_q", ""),
            "enters_i": ("u_buffer.data_i", "[576:0]"),
            "leaves_i": ("u_buffer.data_o", "[576:0]"),
            **{f"{name}_i": (f"{name}_q", "") for name in ("answer", "arp", "ping", "scores")},
            "time_i": ("time_q", "[31:0]"),
            "rest_i": ("rest_q", "[10:0]"),
            "word_i": ("word_q", "[4:0]"),
            "keep_i": ("keep", "[63:0]"),
            "beat_i": ("beat", "[511:0]"),
            "heading_words_i": ("u_heading.words_i", "[191:0]"),
            "heading_sum_i": ("heading_sum", "[15:0]"),
            "message_words_i": ("u_message.words_i", "[575:0]"),
            "message_sum_i": ("message_sum", "[15:0]"),
            "echo_check_i": ("echo_check_q", "[15:0]"),
        },
    ),
)
"""Every block that has checks. Narrow lanes and short floats keep the proofs small."""


@dataclass(frozen=True, slots=True)
class Port:
    """A port in the source text of a block; `bit_range` is, for example, `[Width-1:0]`, or empty."""

    direction: str
    bit_range: str
    name: str


def _parse_ports(text: str) -> tuple[Port, ...]:
    """Return the ports in the header of a block."""
    head = text[: text.index(");")] + "\n"
    return tuple(Port(*match.groups()) for match in _PORT_PATTERN.finditer(head))


def write_proof(proofs: Iterable[BlockProof], mutants: Mapping[int, str] | None = None) -> str:
    """Return the top `proof`, with the blocks and their checks as instances `b0`, `b1`, ...

    `mutants` maps numbers of blocks, as in `b0`, to the names of modules that replace these blocks.
    """
    block_proofs = list(proofs)
    parts = [
        "\n".join(_write_wrapper(index, block_proof, (mutants or {}).get(index, block_proof.block)))
        for index, block_proof in enumerate(block_proofs)
    ]
    return "\n\n".join([*parts, _write_top(len(block_proofs))])


def _write_top(block_count: int) -> str:
    instances = [f"  proof_{index} b{index} (.clk_i(clk_i), .rst_i(rst_i));" for index in range(block_count)]
    return "\n".join(
        [
            "module proof (input logic clk_i, input logic rst_i);",
            *BEGINNING_LINES,
            *instances,
            "endmodule",
            "",
        ]
    )


BEGINNING_LINES = (
    "  // The only assumption: the first cycle is one of reset.",
    "  logic begun_q = 1'b0;",
    "  always_ff @(posedge clk_i) begun_q <= 1'b1;",
    "  always_comb if (!begun_q) assume (rst_i);",
)
"""First lines in the body of every top of a proof."""


def _write_wrapper(index: int, proof: BlockProof, module: str) -> Iterator[str]:
    ports = _parse_ports((RTL / f"{proof.block}.sv").read_text(encoding="ascii"))
    yield f"module proof_{index} (input logic clk_i, input logic rst_i);"
    for name, value in proof.parameters.items():
        yield f"  localparam {name} = {value};"
    for port in ports:
        if port.name not in {"clk_i", "rst_i"}:
            yield f"  {'(* anyseq *) ' if port.direction == 'input' else ''}logic {port.bit_range} {port.name};"
    for path, bit_range in proof.hidden_wires.values():
        yield f"  (* hierconn *) logic {bit_range} \\dut.{path} ;"
    parameters = ", ".join(f".{name}({name})" for name in proof.parameters)
    assignment = f"#({parameters}) " if parameters else ""
    connections = {port.name: port.name for port in ports}
    yield f"  {module} {assignment}dut ({_write_connections(connections)});"
    hidden_wires = {port: f"\\dut.{path} " for port, (path, _) in proof.hidden_wires.items()}
    check_connections = {
        "clk_i": "clk_i",
        "rst_i": "rst_i",
        **connections,
        **hidden_wires,
        **proof.extra_connections,
    }
    yield f"  {proof.block}_checks {assignment}checks ({_write_connections(check_connections)});"
    yield "endmodule"


def _write_connections(connections: Mapping[str, str]) -> str:
    return ", ".join(f".{port}({wire})" for port, wire in connections.items())


def collect_proof_sources(proofs: Iterable[BlockProof]) -> dict[str, str]:
    """Return the files of the proof of these blocks by name, with the top `proof` last."""
    block_proofs = list(proofs)
    names = list(dict.fromkeys(block_proof.block for block_proof in block_proofs))
    return {
        **read_instantiated_sources(names),
        **{f"{name}.sv": (RTL / f"{name}.sv").read_text(encoding="ascii") for name in names},
        **read_checks_sources(names),
        "proof.sv": write_proof(block_proofs),
    }


def read_instantiated_sources(blocks: Iterable[str]) -> dict[str, str]:
    """Return the files of all blocks that are instantiated in these blocks, by file name."""
    texts = ((RTL / f"{block}.sv").read_text(encoding="ascii") for block in dict.fromkeys(blocks))
    paths = {RTL / f"{name}.sv" for text in texts for name in find_instances(text)}
    return {path.name: path.read_text(encoding="ascii") for path in sorted(paths) if path.exists()}


def read_checks_sources(blocks: Iterable[str]) -> dict[str, str]:
    """Return the files of the checks of these blocks, by file name."""
    files = (CHECKS_FOLDER / f"{block}_checks.sv" for block in dict.fromkeys(blocks))
    return {path.name: path.read_text(encoding="ascii") for path in files}
