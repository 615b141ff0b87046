"""Memories: their declaration, `store ... in m[...]` and `read m[...] as ...` (R25).

A memory has one write port, which stores and loads share, and one read port. In cycles without a write, the write
port reads the word at the driver's address. One block of `fpga/rtl` is the whole memory, so the declaration builds,
simulates and proves the hardware of its stores and reads, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from fpga.count_action.actions.kind import (
    Edge,
    Hardware,
    Kind,
    Lines,
    Shape,
    Statements,
    TextWriter,
    UnresolvedAction,
    write_if,
)
from fpga.count_action.actions.proof import (
    CLOCK_CONNECTIONS,
    FALSE,
    Check,
    ProofExpressions,
    declare_hidden_wire,
)
from fpga.count_action.diagnostics import Diagnostics, find_range_error, make_diagnostic, quote, suggest_name
from fpga.count_action.graph import Graph
from fpga.count_action.model import (
    MAX_WORDS,
    Action,
    ActionKind,
    Datapath,
    Module,
    Ref,
    Signal,
    SignalKind,
)

DECLARE_MEMORY = "Declare it in the module: `memory NAME: 256 of 16 bits`."
"""The hint for a memory that a module does not have."""
_EXACT_BITS = 64
"""Width of addresses in the checks, in bits: it holds the value of any formula exactly."""


def compute_address_width(word_count: int) -> int:
    """Return the number of bits of an address.

    >>> compute_address_width(2), compute_address_width(256), compute_address_width(257)
    (1, 8, 9)
    """
    return max(1, (word_count - 1).bit_length())


def make_load_inputs(
    module_name: str, memory_name: str, word_count: int, width: int
) -> tuple[Signal, Signal, Signal]:
    """Return the external inputs through which a driver loads a memory: load, address and word."""
    name, part_of = f"{module_name}_{memory_name}", f"{module_name}.{memory_name}"
    address = Signal(
        f"{name}_address", SignalKind.NUMBER, width=compute_address_width(word_count), part_of=part_of
    )
    return (
        Signal(f"{name}_load", SignalKind.FLAG, part_of=part_of),
        address,
        Signal(f"{name}_word", SignalKind.NUMBER, width=width, part_of=part_of),
    )


def make_memory(
    module_name: str, memory_name: str, word_count: int, width: int
) -> tuple[Action, tuple[Signal, ...]]:
    """Return the declaration of a memory, and the external inputs that it needs."""
    inputs = make_load_inputs(module_name, memory_name, word_count, width)
    refs = tuple(Ref(signal.name) for signal in inputs)
    return Action(ActionKind.MEMORY, "", memory_name, refs, width, words=word_count), inputs


def list_memories(datapath: Datapath) -> Iterator[tuple[Module, Action]]:
    """Yield the declarations of all memories with their modules."""
    return (
        (module, memory) for module in datapath.modules for memory in module.list_actions(ActionKind.MEMORY)
    )


def find_memory(datapath: Datapath, module_name: str, memory_name: str) -> Action:
    """Return the declaration of a memory. Raise KeyError if there is none."""
    for owner, action in list_memories(datapath):
        if (owner.name, action.output) == (module_name, memory_name):
            return action
    memory_names = ", ".join(f"{owner.name}.{action.output}" for owner, action in list_memories(datapath))
    raise KeyError(f"no memory {module_name}.{memory_name}; there are: {memory_names or 'none'}")


def list_stores(module: Module, memory: Action) -> list[Action]:
    """Return the stores in a memory, in the order of the text."""
    return [store for store in module.list_actions(ActionKind.STORE_WORD) if store.memory == memory.output]


def find_read(module: Module, memory: Action) -> Action | None:
    """Return the read of a memory, or None if only a driver reads it."""
    return next((read for read in module.list_actions(ActionKind.READ) if read.memory == memory.output), None)


def _find_owner(datapath: Datapath, action: Action) -> Module:
    """Return the module that has this very action; another module may have an equal one."""
    return next(
        module for module in datapath.modules if any(candidate is action for candidate in module.actions)
    )


class Memory(Kind):
    """Words that stores change, reads fetch, and a driver loads and reads back."""

    kind = ActionKind.MEMORY
    rules = ("memory",)
    noun = "memory"
    register = "the word at the address that the driver has written"

    def parse(self, rule: str, *parts: Any) -> dict[str, Any]:
        name, word_count, width = parts
        return {"name": name, "width": width, "numbers": {"words": word_count}}

    def write(self, text_writer: TextWriter, module: Module, action: Action) -> str:
        return f"memory {action.output}: {action.words} of {action.width} bits"

    def compute_shape(
        self, action: UnresolvedAction, get_sample_shapes: Callable[[], Sequence[Shape]]
    ) -> Shape:
        return Shape(1, action.width or 1, signed=False)

    def find_problems(self, datapath: Datapath, action: Action) -> Diagnostics:
        name = quote(action.output)
        yield from find_range_error(
            f"number of words of memory {name}", action.words, 2, MAX_WORDS, action.location
        )
        signals = {signal.name: signal for signal in datapath.inputs}
        owner = _find_owner(datapath, action)
        expected_inputs = make_load_inputs(owner.name, action.output, action.words, action.width)
        if [(ref.module, ref.name) for ref in action.refs] != [
            (None, signal.name) for signal in expected_inputs
        ] or any(signals.get(signal.name) != signal for signal in expected_inputs):
            message = f"memory {name} lacks the inputs through which a driver loads it"
            yield make_diagnostic(
                action.location, message, "Use `make_memory`, and add its inputs to the datapath."
            )

    def find_broken_rules(self, graph: Graph) -> Diagnostics:
        for module, memory in list_memories(graph.datapath):
            stores = list_stores(module, memory)
            reads = [read for read in module.list_actions(ActionKind.READ) if read.memory == memory.output]
            name = quote(memory.output)
            if not stores and not reads:
                message = f"memory {name} is neither stored nor read"
                hint = f"Write `read {memory.output}[ADDRESS] as NAME`, or remove it."
                yield make_diagnostic(memory.location, message, hint)
            for read in reads[1:]:
                first_read_text = f"; the first is at {reads[0].location}" if reads[0].location else ""
                message = f"memory {name} has two reads, and one word can be read per cycle{first_read_text}"
                choice_text = f"read {memory.output}[a if first else b] as NAME"
                hint = f"Select the address in one read, `{choice_text}`, or declare a second memory."
                yield make_diagnostic(read.location, message, hint)
            for store in stores if len(stores) > 1 else ():
                if not store.ranked:
                    message = f"memory {name} has {len(stores)} stores, and this one does not say which wins"
                    hint = "Write `by priority` after each: the first in the text wins. Or declare a second memory."
                    yield make_diagnostic(store.location, message, hint)

    def describe(self, action: Action, name: str) -> str:
        return f"{name} is a memory (R25)"

    def reset(self, action: Action) -> Any:
        """Return the words by address. Words that are missing are 0."""
        return {}

    def keep(self, edge: Edge, module: Module, action: Action) -> Any:
        words_by_address: Mapping[int, int] = edge.read_action_state(module, action.output)
        load, address, word = action.refs
        if edge.read_sample(load):
            word_address, value = edge.read_sample(address), edge.read_sample(word)
        else:
            store = next(
                (
                    store_action
                    for store_action in list_stores(module, action)
                    if edge.fires(module, store_action.on)
                ),
                None,
            )
            if store is None:
                return words_by_address
            word_address, value = edge.read_sample(store.refs[1]), edge.read_sample(store.refs[0])
        if not 0 <= word_address < action.words:
            return words_by_address
        return {**words_by_address, word_address: value & (1 << action.width) - 1}

    def drive(self, edge: Edge, module: Module, action: Action) -> int | None:
        load, address, _ = action.refs
        if edge.read_sample(load) or any(
            edge.fires(module, store.on) for store in list_stores(module, action)
        ):
            return None
        words_by_address: Mapping[int, int] = edge.read_action_state(module, action.output)
        return words_by_address.get(edge.read_sample(address), 0)

    def count_array_words(self, action: Action) -> int:
        return action.words

    def collect(self, statements: Statements, module: Module, action: Action) -> Lines:
        """Yield the reads and writes of a cycle: `mq` is the word read, `mb` is 1 if the write port is busy."""
        array, fetched_word, word_address, is_inside, busy, value, read_back = (
            statements.find_register(module, action, letter)
            for letter in ("a", "mq", "mp", "mi", "mb", "mv", "mo")
        )
        read = find_read(module, action)
        if read is not None:
            yield f"{word_address} = {statements.write_sample(read.refs[0])}"
            yield f"{is_inside} = ({word_address} > -1) & ({action.words} > {word_address})"
            yield f"{fetched_word} = 0"
            yield write_if(is_inside, [f"{fetched_word} = {array}[{word_address}]"])
        load, address, word = (statements.write_sample(ref) for ref in action.refs)
        yield f"{busy} = {load}"
        yield f"{word_address} = {address}"
        yield f"{value} = {word}"
        for store in reversed(list_stores(module, action)):  # reversed, so that the first store wins
            stored_ref, store_address = store.refs
            lines = [
                f"{busy} = 1",
                f"{word_address} = {statements.write_sample(store_address)}",
                f"{value} = {statements.write_sample(stored_ref, action.width, signed=False)}",
            ]
            yield write_if(f"{statements.write_fire(module, store)} & ({load} ^ 1)", lines)
        yield f"{is_inside} = ({word_address} > -1) & ({action.words} > {word_address})"
        yield f"{read_back} = 0"
        yield write_if(f"{is_inside} & ({busy} ^ 1)", [f"{read_back} = {array}[{word_address}]"])
        yield write_if(f"{is_inside} & {busy}", [f"{array}[{word_address}] = {value}"])

    def update(self, statements: Statements, module: Module, action: Action) -> Lines:
        name, read_back, busy = (
            statements.find_register(module, action, letter) for letter in ("r", "mo", "mb")
        )
        yield write_if(f"{busy} ^ 1", [f"{name} = {read_back}"])

    def build(self, hardware: Hardware, module: Module, action: Action) -> Lines:
        name, stores, read = (
            f"{module.name}_{action.output}",
            list_stores(module, action),
            find_read(module, action),
        )
        address_width = compute_address_width(action.words)
        load, address, word = action.refs
        is_inside, word_address, value = hardware.write_bit(0), f"{address_width}'d0", f"{action.width}'d0"
        for store in reversed(stores):
            store_inputs = (
                hardware.write_range_check(store.refs[1], action.words),
                hardware.resize_sample(store.refs[1], address_width),
                hardware.resize_sample(store.refs[0], action.width),
            )
            if store is stores[-1]:
                is_inside, word_address, value = store_inputs
            else:
                fire = hardware.write_fire(module, store)
                is_inside, word_address, value = (
                    f"{fire} ? {chosen} : {alternative}"
                    for chosen, alternative in zip(
                        store_inputs, (is_inside, word_address, value), strict=True
                    )
                )
        number_wire = f"{name}_unused"
        if read is None:
            yield hardware.declare_wire(number_wire, action.width)
        else:
            number_wire = f"{module.name}_{read.output}_o"
        ports = {
            "store_i": hardware.write_any_fire(module, stores),
            "store_inside_i": is_inside,
            "store_address_i": word_address,
            "store_word_i": value,
            "load_i": hardware.resize_sample(load, 1),
            "load_inside_i": hardware.write_range_check(address, action.words),
            "load_address_i": hardware.resize_sample(address, address_width),
            "load_word_i": hardware.resize_sample(word, action.width),
            "loaded_o": f"{name}_o",
            "read_i": hardware.write_bit(0) if read is None else hardware.write_fire(module, read),
            "read_inside_i": hardware.write_bit(0)
            if read is None
            else hardware.write_range_check(read.refs[0], action.words),
            "read_address_i": f"{address_width}'d0"
            if read is None
            else hardware.resize_sample(read.refs[0], address_width),
            "number_o": number_wire,
        }
        parameters = {"Words": action.words, "Width": action.width, "AddressWidth": address_width}
        yield from hardware.write_block("count_action_memory", f"u_{name}_memory", parameters, ports)

    def prove(self, expressions: ProofExpressions, module: Module, action: Action) -> Iterator[Check]:
        """Yield the check of a memory. It watches one word, whose address the prover chooses."""
        name, address_width = f"{module.name}_{action.output}", (action.words - 1).bit_length()
        memory_actions = [candidate for candidate in module.actions if candidate.memory == action.output]
        writes = [user for user in memory_actions if user.kind is ActionKind.STORE_WORD]
        reads = [user for user in memory_actions if user.kind is ActionKind.READ]

        def split_address(ref: Ref) -> tuple[str, str]:
            """Return the condition that an address is inside the memory, and the address."""
            exact_address = expressions.resize_sample(ref, _EXACT_BITS)
            # The comparison is unsigned, so a negative address is too large.
            return f"({exact_address} < {_EXACT_BITS}'d{action.words})", expressions.resize_sample(
                ref, address_width
            )

        def select(values: Iterable[str], default: str) -> str:
            """Return the value of the first store whose count fires."""
            fires = (expressions.write_fire(module, write.on) for write in writes)
            return (
                "".join(f"{fire} ? {value} : " for fire, value in zip(fires, values, strict=True)) + default
            )

        store_addresses = [split_address(write.refs[1]) for write in writes]
        read_ports = [
            (expressions.write_fire(module, read_action.on), *split_address(read_action.refs[0]))
            for read_action in reads
        ]
        number_wires = [f"{module.name}_{read.output}_o" for read in reads]
        load_inside, load_address = split_address(action.refs[1])
        read_fire, read_inside, read_address = (
            read_ports[0] if read_ports else (FALSE, FALSE, f"{address_width}'d0")
        )
        hidden_names = [f"u_{name}_memory.watch", f"u_{name}_memory.watched"]
        ports = {
            **CLOCK_CONNECTIONS,
            "store_i": expressions.write_any_fire(module, writes),
            "store_inside_i": select((inside for inside, _ in store_addresses), FALSE),
            "store_address_i": select((address for _, address in store_addresses), f"{address_width}'d0"),
            "store_word_i": select(
                (expressions.resize_sample(write.refs[0], action.width) for write in writes),
                f"{action.width}'d0",
            ),
            "load_i": expressions.resize_sample(action.refs[0], 1),
            "load_inside_i": load_inside,
            "load_address_i": load_address,
            "load_word_i": expressions.resize_sample(action.refs[2], action.width),
            "loaded_o": f"{name}_o",
            "read_i": read_fire,
            "read_inside_i": read_inside,
            "read_address_i": read_address,
            "number_o": number_wires[0] if number_wires else f"\\dut.{name}_unused ",
            "watch_i": f"\\dut.{hidden_names[0]} ",
            "watched_i": f"\\dut.{hidden_names[1]} ",
        }
        parameters = {"Words": action.words, "Width": action.width, "AddressWidth": address_width}
        declarations = (
            declare_hidden_wire(hidden_names[0], address_width),
            declare_hidden_wire(hidden_names[1], action.width),
        )
        unread_declarations = () if number_wires else (declare_hidden_wire(f"{name}_unused", action.width),)
        yield Check(
            "count_action_memory",
            module.name,
            action.output,
            parameters,
            ports,
            (*declarations, *unread_declarations),
        )


class _WordAccess(Kind):
    """An action on a word of a memory of its module; its last reference is the address."""

    operands_text: str = ""
    """Description of the valid `refs`, for messages."""
    reference_count = 1
    """Number of references that the action needs."""

    def find_problems(self, datapath: Datapath, action: Action) -> Diagnostics:
        owner = _find_owner(datapath, action)
        memories = [memory.output for memory in owner.list_actions(ActionKind.MEMORY)]
        if action.memory not in memories:
            message = f"{quote(owner.name)} has no memory {quote(action.memory)}"
            yield make_diagnostic(
                action.location, message, suggest_name(action.memory, memories) or DECLARE_MEMORY
            )
        elif len(action.refs) != self.reference_count:
            message = f"this names {len(action.refs)} samples, and needs {self.operands_text}"
            yield make_diagnostic(action.location, message, "Name one lane, `x.data[1]`, and no range.")


class StoreWord(_WordAccess):
    """An action that stores a sample in a word of a memory."""

    kind = ActionKind.STORE_WORD
    rules = ("store_word",)
    operands_text = "a value and an address"
    reference_count = 2

    def parse(self, rule: str, *parts: Any) -> dict[str, Any]:
        value, memory, address, ranked = parts
        keyword_values = {"memory": str(memory), "ranked": ranked is not None}
        return {"samples": (value, address), "words": keyword_values}

    def write(self, text_writer: TextWriter, module: Module, action: Action) -> str:
        value, address = (text_writer.write_sample(ref) for ref in action.refs)
        return f"store {value} in {action.memory}[{address}]{' by priority' if action.ranked else ''}"

    def describe(self, action: Action, name: str) -> str:
        return f"{name}{action.memory} stores a word (R25)"


class Read(_WordAccess):
    """An action that fetches a word of a memory."""

    kind = ActionKind.READ
    rules = ("read",)
    noun = "number"
    register = "the word that was read last"
    operands_text = "one address"

    def parse(self, rule: str, *parts: Any) -> dict[str, Any]:
        memory, address, name = parts
        return {"name": name, "samples": (address,), "words": {"memory": str(memory)}}

    def write(self, text_writer: TextWriter, module: Module, action: Action) -> str:
        return f"read {action.memory}[{text_writer.write_sample(action.refs[0])}] as {action.output}"

    def compute_shape(
        self, action: UnresolvedAction, get_sample_shapes: Callable[[], Sequence[Shape]]
    ) -> Shape:
        return Shape(1, action.width or 1, signed=False)

    def find_problems(self, datapath: Datapath, action: Action) -> Diagnostics:
        yield from super().find_problems(datapath, action)
        owner = _find_owner(datapath, action)
        for memory in owner.list_actions(ActionKind.MEMORY):
            if memory.output == action.memory and memory.width != action.width:
                message = f"{quote(action.output)} has {action.width} bits, and the words of its memory {memory.width}"
                yield make_diagnostic(action.location, message, f"Give it {memory.width} bits.")

    def describe(self, action: Action, name: str) -> str:
        return f"{name} is the word of {action.memory} at the address (R25)"

    def drive(self, edge: Edge, module: Module, action: Action) -> int | None:
        if not edge.fires(module, action.on):
            return None
        words_by_address: Mapping[int, int] = edge.read_action_state(module, action.memory)
        return words_by_address.get(edge.read_sample(action.refs[0]), 0)

    def update(self, statements: Statements, module: Module, action: Action) -> Lines:
        name, memory = statements.find_register(module, action), module.map_outputs()[action.memory]
        fetched_word = statements.find_register(module, memory, "mq")
        yield write_if(statements.write_fire(module, action), [f"{name} = {fetched_word}"])

    def build(self, hardware: Hardware, module: Module, action: Action) -> Lines:
        """Yield nothing: the block of the memory drives the number."""
        return iter(())

    def prove(self, expressions: ProofExpressions, module: Module, action: Action) -> Iterator[Check]:
        """Yield nothing: the check of the memory covers the number."""
        return iter(())
