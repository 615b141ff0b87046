"""DLRM and NCF, with embedding tables and dense layers, and CANDLE Uno, with dense towers.

Widths are from the scripts of the TopoOpt artifact. There, a list of DLRM begins with the width of the input. So
"8x2048" means 7 layers, and "16x4096-1" means 15 layers and a last layer of width 1. The artifact's task graph confirms
this.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from testbed.design.workloads.catalogue.blocks import (
    SINGLE_PRECISION,
    WorkloadBuilder,
    make_dense,
    make_operator,
    make_table,
)
from testbed.design.workloads.catalogue.parameters import Parameters, Widths
from testbed.design.workloads.model import Operator, Workload
from testbed.errors import WorkloadError


@dataclass(frozen=True, slots=True, kw_only=True)
class Dlrm(Parameters):
    """DLRM with `tables` of `rows` x `width`. A sample reads `bag` rows of each table.

    `features` enter the bottom layers. The outputs of tables and bottom layers are concatenated for the top layers, or,
    with `dot` = 1, multiplied in pairs.
    """

    tables: int = 64
    rows: int = 10_000_000
    width: int = 128
    bag: int = 100
    dot: int = 0
    features: int = 2048
    bottom: Widths = (2048,) * 7
    top: Widths = (4096,) * 15 + (1,)
    batch_per_device: int = 128


def build_dlrm(name: str, parameters: Dlrm, nodes: int, origin: str) -> Workload:
    """Return DLRM: tables and bottom layers, concatenated or multiplied in pairs, and top layers."""
    builder = WorkloadBuilder()
    tables = [
        builder.add_operator(
            make_table(f"table{table_index}", parameters.rows, parameters.width, parameters.bag)
        )
        for table_index in range(parameters.tables)
    ]
    vectors = (*builder.add_chain(make_layers("bottom", parameters.features, parameters.bottom)), *tables)
    joined_width = parameters.bottom[-1] + parameters.tables * parameters.width
    if parameters.dot:
        products = _make_products(parameters)
        vectors, joined_width = (
            (builder.add_operator(products, *vectors),),
            parameters.bottom[-1] + parameters.tables * (parameters.tables + 1) // 2,
        )
    builder.add_chain(make_layers("top", joined_width, parameters.top), *vectors)
    return builder.build_workload(name, parameters.count_samples(nodes), origin=origin)


def _make_products(parameters: Dlrm) -> Operator:
    """Return the batched product of all pairs of vectors, of which half is kept, plus the bottom layers' vector.

    Raises `WorkloadError` if the bottom layers and the tables have different widths.
    """
    if parameters.bottom[-1] != parameters.width:
        raise WorkloadError(
            f"dlrm: the bottom layers end in {parameters.bottom[-1]}, but the tables are {parameters.width} wide; dot "
            f"products need equal widths: end bottom in {parameters.width}, or set dot to 0"
        )
    vector_count = parameters.tables + 1
    output_count = parameters.width + parameters.tables * vector_count // 2
    return make_operator(
        "products",
        "products",
        flops=2.0 * vector_count * vector_count * parameters.width,
        parameter_count=0,
        output_count=output_count,
        moved_count=vector_count * parameters.width + 2 * vector_count * vector_count + output_count,
        precision=SINGLE_PRECISION,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ncf(Parameters):
    """NCF with `pairs` of tables (users, items) in each of two branches. A sample reads `bag` rows of each table."""

    pairs: int = 32
    users: int = 1_000_000
    items: int = 1_000_000
    factor: int = 64
    width: int = 128
    bag: int = 100
    top: Widths = (4096,) * 7
    batch_per_device: int = 128


def build_ncf(name: str, parameters: Ncf, nodes: int, origin: str) -> Workload:
    """Return neural collaborative filtering: a product of factors and dense layers, joined by a last layer."""
    builder = WorkloadBuilder()
    factor_tables = [
        builder.add_operator(table) for table in _make_table_pairs("factor", parameters, parameters.factor)
    ]
    dense_tables = [
        builder.add_operator(table) for table in _make_table_pairs("dense", parameters, parameters.width)
    ]
    product = builder.add_operator(
        make_dense("product", parameters.pairs * parameters.factor, 1, has_bias=False, ways=("data",)),
        *factor_tables,
    )
    last_inputs = builder.add_chain(
        make_layers("top", 2 * parameters.pairs * parameters.width, parameters.top), *dense_tables
    )
    builder.add_operator(
        make_dense("score", parameters.top[-1] + 1, 1, ways=("data",)), product, *last_inputs
    )
    return builder.build_workload(name, parameters.count_samples(nodes), origin=origin)


def _make_table_pairs(branch: str, parameters: Ncf, width: int) -> list[Operator]:
    return [
        make_table(f"{branch}_{role}{pair_index}", rows, width, parameters.bag)
        for pair_index in range(parameters.pairs)
        for role, rows in (("user", parameters.users), ("item", parameters.items))
    ]


#: Widths of CANDLE Uno's inputs that have towers, for two drugs. The two doses bypass the towers.
UNO_INPUTS = {
    "cell_rnaseq": 942,
    "drug1_descriptors": 5270,
    "drug1_fingerprints": 2048,
    "drug2_descriptors": 5270,
    "drug2_fingerprints": 2048,
}
UNO_DOSES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Candle(Parameters):
    """CANDLE Uno with `feature_layers` in each of five towers, and `layers` after their concatenation."""

    feature_layers: Widths = (16384,) * 16
    layers: Widths = (16384,) * 8 + (1,)
    batch_per_device: int = 256


def build_candle(name: str, parameters: Candle, nodes: int, origin: str) -> Workload:
    """Return CANDLE Uno: five towers of dense layers, concatenated with two doses, and more dense layers."""
    builder = WorkloadBuilder()
    towers = [
        op_index
        for feature, width in UNO_INPUTS.items()
        for op_index in builder.add_chain(make_layers(feature, width, parameters.feature_layers))
    ]
    joined_width = len(UNO_INPUTS) * parameters.feature_layers[-1] + UNO_DOSES
    builder.add_chain(make_layers("dense", joined_width, parameters.layers), *towers)
    return builder.build_workload(name, parameters.count_samples(nodes), origin=origin)


def make_layers(prefix: str, first_width: int, widths: Widths) -> list[Operator]:
    """Return a chain of dense layers. A layer of width 1 can only be data parallel."""
    return [
        make_dense(f"{prefix}{number}", input_width, output_width)
        if output_width > 1
        else make_dense(f"{prefix}{number}", input_width, output_width, ways=("data",))
        for number, (input_width, output_width) in enumerate(pairwise((first_width, *widths)))
    ]
