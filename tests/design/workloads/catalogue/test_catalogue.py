"""The catalogue has the sizes that were published, and refuses what cannot be."""

from __future__ import annotations

import pytest

from testbed.design.workloads.catalogue import make_parameters, names, parse_model_settings, presets, workload
from testbed.design.workloads.iteration.task_graph import iteration
from testbed.design.workloads.iteration.totals import TrafficTotals, sum_graph_traffic
from testbed.design.workloads.roofline import A100_80GB_BF16, Cluster, compute_operator_seconds
from testbed.design.workloads.sharding import Sharding, Strategy, make_data_sharding
from testbed.design.workloads.strategies import default_strategy, list_legal_shardings
from testbed.errors import WorkloadError

SETTINGS = [(name, preset) for name in names() for preset in (None, *presets(name))]


def parameters(job, number_bytes=4):
    return job.parameter_bytes / number_bytes


def forward_flops(job):
    return sum(operator.forward_flops for operator in job.operators)


def summed_bytes(job):
    """Return what pure data parallelism sums, tables aside."""
    return sum(operator.gradient_bytes for operator in job.operators if operator.kind != "embedding")


def test_there_are_the_models_people_ask_for():
    assert names() == (
        *("dlrm", "dlrm-a2a", "candle", "bert", "ncf", "resnet50", "vgg16", "gpt", "moe", "serve"),
    )


@pytest.mark.parametrize(("name", "preset"), SETTINGS)
def test_every_setting_builds(name, preset):
    job = workload(name, 8, preset=preset)
    assert job.batch >= 8
    assert all(operator.ways and operator.output_bytes > 0 for operator in job.operators)
    read = {producer for producer, _ in job.edges}
    last = {place for place in range(len(job.operators)) if place not in read}
    assert max(last) == len(job.operators) - 1
    assert {job.operators[place].kind for place in last} <= {"dense", "head", "mlp"}
    for operator in job.operators:
        if job.training and operator.kind != "embedding":
            assert operator.backward_flops == 2 * operator.forward_flops
            assert operator.gradient_bytes == operator.parameter_bytes
        if not job.training:
            assert operator.backward_flops == operator.gradient_bytes == operator.state_bytes == 0


# ------------------------------------------------------------------------------- published totals


def test_resnet50_has_its_published_size():
    job = workload("resnet50", 1)
    assert parameters(job) == 25_557_032
    assert forward_flops(job) / 2 == pytest.approx(4.1e9, rel=0.01)
    assert len(job.operators) == 18


def test_vgg16_has_its_published_size():
    job = workload("vgg16", 1)
    assert parameters(job) == 138_357_544
    assert forward_flops(job) / 2 == pytest.approx(15.5e9, rel=0.005)
    assert len(job.operators) == 16


@pytest.mark.parametrize(("preset", "published"), [("base", 109_482_240), ("large", 335_141_888)])
def test_bert_has_its_published_size(preset, published):
    assert parameters(workload("bert", 1, preset=preset)) == published


@pytest.mark.parametrize(
    ("size", "published"),
    [
        *(("125m", 125e6), ("350m", 356e6), ("760m", 760e6), ("1.3b", 1.3e9)),
        *(("2.7b", 2.65e9), ("6.7b", 6.65e9), ("13b", 12.85e9), ("175b", 174.6e9)),
    ],
)
def test_gpt_has_its_published_sizes(size, published):
    assert parameters(workload("gpt", 1, preset=size), 2) == pytest.approx(published, rel=0.013)


def test_gpt_takes_six_operations_a_parameter_and_token():
    """The rule 6ND, which leaves attention over the context out: 3 % of it in the largest model."""
    job = workload("gpt", 1, preset="175b")
    both = sum(operator.forward_flops + operator.backward_flops for operator in job.operators)
    assert 1.0 < both / (6 * parameters(job, 2) * 2048) < 1.03


def test_a_transformer_layer_takes_what_megatron_says():
    """24 s h^2 + 4 s^2 h forward, 12 h^2 + 13 h parameters; here s = 128, h = 256."""
    job = workload("gpt", 1, layers=1, sequence=128, hidden=256, heads=4)
    layer = job.operators[1:3]
    assert sum(operator.forward_flops for operator in layer) == 24 * 128 * 256**2 + 4 * 128**2 * 256
    assert sum(operator.parameter_bytes for operator in layer) == 2 * (12 * 256**2 + 13 * 256)
    for operator in layer:
        assert operator.forward_reduce_bytes == operator.backward_reduce_bytes == 2 * 128 * 256
        assert (
            operator.state_bytes == 7 * operator.parameter_bytes
        )  # 16 bytes a parameter, of which 2 its own


@pytest.mark.parametrize(
    ("preset", "total", "active"), [("mixtral-8x7b", 46.7e9, 12.9e9), ("mixtral-8x22b", 140.6e9, 39e9)]
)
def test_mixtral_has_its_published_sizes(preset, total, active):
    job = workload("moe", 1, preset=preset)
    assert parameters(job, 2) == pytest.approx(total, rel=0.003)
    given = make_parameters("moe", preset)
    idle = sum(
        operator.parameter_bytes / 2 * (1 - given.routed / given.experts)
        for operator in job.operators
        if operator.kind == "experts"
    )
    assert parameters(job, 2) - idle == pytest.approx(active, rel=0.01)


@pytest.mark.parametrize(("preset", "published"), [("llama-8b", 8.03e9), ("llama-70b", 70.55e9)])
def test_llama_has_its_published_sizes(preset, published):
    """Each side of a served model holds all of it."""
    for sides in ({"prefill": 1, "decode": 0}, {"prefill": 0, "decode": 1}):
        job = workload("serve", 1, preset=preset, **sides)
        assert parameters(job, 2) == pytest.approx(published, rel=0.001)
    assert parameters(workload("serve", 1, preset=preset), 2) == pytest.approx(2 * published, rel=0.001)


# --------------------------------------------------------------------------- the TopoOpt artifact


def test_dlrm_is_the_artifacts():
    """64 tables of 5.12 GB; gradients as in the artifact's task graph for 128 servers: 14 layers of 4096 x 4096, one
    of 10240 x 4096, 7 of 2048 x 2048 (of which the artifact splits two), their biases, and 4096 x 1."""
    job = workload("dlrm", 128, preset="fig11")
    tables = [operator for operator in job.operators if operator.kind == "embedding"]
    assert {operator.parameter_bytes for operator in tables} == {5_120_000_000}
    assert len(tables) == 64
    weights = 14 * 67_108_864 + 167_772_160 + 7 * 16_777_216
    assert summed_bytes(job) == weights + 7 * 8192 + 16 * 16384 + 4
    assert summed_bytes(job) - 2 * 16_777_216 == pytest.approx(1.19e9, rel=0.002)
    assert job.batch == 128 * 4 * 128
    assert tables[0].output_bytes * 8 * 128 == 524_288  # its transfers: 1,024 samples of a server


def test_a_dlrm_sample_reads_a_hundred_rows_of_each_table():
    operator = workload("dlrm", 1).operators[0]
    assert operator.forward_flops == 100 * 128
    assert operator.moved_bytes == 100 * 128 * 4 + 128 * 4 + 100 * 8
    assert operator.state_bytes == 0
    assert operator.gradient_bytes == operator.parameter_bytes  # when copied to several servers
    assert operator.ways == ("place", "data")


def test_all_to_all_dlrm_has_a_table_for_each_server():
    job = workload("dlrm-a2a", 128, batch_per_device=64)
    assert sum(operator.kind == "embedding" for operator in job.operators) == 128
    assert job.batch == 64 * 4 * 128
    assert job.operators[job.index_by_operator["top0"]].parameter_bytes == 4 * (
        (128 * 128 + 2048) * 4096 + 4096
    )


def test_dlrm_of_the_testbed_multiplies_in_pairs():
    job = workload("dlrm", 12, preset="testbed")
    products = job.operators[job.index_by_operator["products"]]
    assert products.output_bytes == 4 * (32768 + 13 * 12 // 2)
    assert products.forward_flops == 2 * 13 * 13 * 32768
    assert job.operators[job.index_by_operator["top0"]].parameter_bytes == 4 * ((32768 + 78) * 1024 + 1024)
    assert job.batch == 12 * 64


def test_candle_is_the_artifacts():
    """62 layers of 4096 x 4096, one of 20482 x 4096 and the towers' first ones, as in its graph for 16 servers."""
    job = workload("candle", 16, preset="fig16")
    sizes = [operator.parameter_bytes for operator in job.operators]
    assert sizes.count(4 * (4096 * 4096 + 4096)) == 62
    assert sizes.count(4 * (20482 * 4096 + 4096)) == 1
    assert sum(len([p for p, c in job.edges if c == place]) == 5 for place in range(len(sizes))) == 1
    assert job.batch == 256 * 4 * 16
    assert workload("candle", 12, preset="testbed").batch == 120


def test_the_released_transformer_is_the_artifacts():
    """227 MB: 24 dense layers of 768 x 768 with biases, 18 attentions of 4 x 768 x 768. Ours add normalisation."""
    job = workload("bert", 16, preset="released")
    assert summed_bytes(job) == pytest.approx(24 * 2_359_296 + 25 * 3072 + 18 * 9_437_184, rel=0.005)
    assert job.batch == 16 * 4 * 16


def test_the_released_vgg16_is_the_artifacts():
    """Its maps are 11 x 11 before the dense layers, for its padding is 2: a first layer of 61952 x 4096, 1157 MB."""
    job = workload("vgg16", 16, preset="released")
    assert job.operators[job.index_by_operator["dense1"]].parameter_bytes == 1_015_021_568 + 16_384
    assert summed_bytes(job) == pytest.approx(1157e6, rel=0.001)


def test_ncf_has_four_tables_a_pair():
    job = workload("ncf", 128, preset="fig11")
    sizes = [operator.parameter_bytes for operator in job.operators if operator.kind == "embedding"]
    assert sizes == [256_000_000] * 64 + [512_000_000] * 64
    assert job.operators[job.index_by_operator["top0"]].parameter_bytes == 4 * (8192 * 4096 + 4096)
    assert job.operators[job.index_by_operator["product"]].parameter_bytes == 4 * 2048
    assert job.operators[-1].parameter_bytes == 4 * (4097 + 1)


# ------------------------------------------------------------------------------- blocks of others


def test_experts_count_those_that_a_token_uses():
    job = workload(
        "moe", 4, layers=1, sequence=10, hidden=8, heads=2, kv_heads=1, inner=16, experts=4, routed=2
    )
    experts = job.operators[job.index_by_operator["experts0"]]
    assert experts.parameter_bytes == 2 * 4 * 3 * 8 * 16
    assert experts.forward_flops == 2 * 10 * 2 * 3 * 8 * 16
    assert experts.output_bytes == 2 * 10 * 8
    assert experts.routed == 2
    assert experts.ways == ("expert", "data")


def test_keys_and_values_of_the_prompt_pass_from_one_side_to_the_other():
    """Llama 8B keeps 2 x 1024 numbers of 2 bytes a token and layer."""
    job = workload("serve", 2, preset="llama-8b", prompt=1000)
    between = [
        (job.operators[producer], job.operators[consumer])
        for producer, consumer in job.edges
        if job.operators[producer].name.split(".")[0] != job.operators[consumer].name.split(".")[0]
    ]
    assert [(one.name, other.name) for one, other in between] == [
        (f"prefill.cache{i}", f"decode.cache{i}") for i in range(32)
    ]
    assert {one.output_bytes for one, _ in between} == {1000 * 2 * 1024 * 2}
    assert not job.training


def test_a_written_token_reads_its_whole_context():
    """Attention over k keys takes 4 k h operations beside the projections, and reads 2 k x 1024 numbers."""
    near, far = (
        workload("serve", 1, prefill=0, prompt=1000, history=history).operators for history in (0, 500)
    )
    more = [b.forward_flops - a.forward_flops for a, b in zip(near, far, strict=True)]
    assert {change for change in more if change} == {4 * 500 * 4096}
    assert sum(change > 0 for change in more) == 32
    moved = next(
        b.moved_bytes - a.moved_bytes for a, b in zip(near, far, strict=True) if a != b and a.moved_bytes
    )
    assert moved == 2 * (2 * 500 * 1024 + 4 * 32 * 500)


def test_a_served_mixture_routes_its_tokens():
    job = workload("serve", 1, preset="mixtral-8x7b", layers=2)
    assert [operator.kind for operator in job.operators].count("experts") == 4
    assert parameters(workload("serve", 1, preset="mixtral-8x7b", decode=0), 2) == pytest.approx(
        46.7e9, rel=0.003
    )


# ------------------------------------------------------------------------ what they send when run


def sent(job, strategy, nodes):
    return sum_graph_traffic(iteration(job, strategy, Cluster(nodes)))


def test_placed_tables_send_their_sums_and_get_gradients_back():
    """2 x B (1 - 1/n) x 4 x width of each table; everything else is summed by all."""
    job = workload("dlrm", 4, tables=3, rows=100, width=8, features=16, bottom=(8,), top=(8, 1))
    traffic = sent(job, default_strategy(job, 4), 4)
    assert traffic.pairs.sum() == 3 * 2 * job.batch * 3 / 4 * 4 * 8
    assert traffic.allreduce == {(0, 1, 2, 3): summed_bytes(job)}


def test_caches_pass_between_shards_by_heads():
    """Two servers read, two write, each pair tensor parallel: every byte of the cache crosses once, to its own half."""
    job = workload(
        "serve", 4, layers=2, hidden=64, heads=4, kv_heads=2, inner=128, vocabulary=100, prompt=10, batch=6
    )
    sides = {"prefill": Sharding("tensor", ((0, 1),)), "decode": Sharding("tensor", ((2, 3),))}
    strategy = Strategy(tuple(sides[operator.name.partition(".")[0]] for operator in job.operators))
    traffic = sent(job, strategy, 4)
    cached = 6 * 10 * 2 * 32 * 2 * 2  # requests, tokens, keys and values of 32 numbers, bytes, layers
    assert traffic.pairs.sum() == cached
    assert traffic.pairs[0, 2] == traffic.pairs[1, 3] == cached / 2
    assert set(traffic.allreduce) == {(0, 1), (2, 3)}


def test_a_cache_elsewhere_gets_keys_and_values_not_outputs():
    """A quarter of the heads have keys and values: 2 x 16 numbers a token beside 64 of the output."""
    job = workload(
        "serve",
        2,
        decode=0,
        layers=1,
        hidden=64,
        heads=4,
        kv_heads=1,
        inner=128,
        vocabulary=100,
        prompt=10,
        batch=6,
    )
    shardings = {True: make_data_sharding([1]), False: make_data_sharding([0])}
    strategy = Strategy(tuple(shardings[operator.kind == "cache"] for operator in job.operators))
    assert sent(job, strategy, 2).pairs.tolist() == [[0, 6 * 10 * 2 * 16 * 2], [0, 0]]
    tallied = TrafficTotals.from_strategy(job, strategy, Cluster(2)).traffic
    assert tallied.pairs.tolist() == sent(job, strategy, 2).pairs.tolist()


def test_shards_have_whole_heads_and_whole_experts():
    served = workload("serve", 128, preset="mixtral-8x7b", layers=1)
    most = {
        operator.kind: max(sharding.shards for sharding in list_legal_shardings(operator, 128))
        for operator in served.operators
    }
    assert most["attention"] == most["cache"] == most["experts"] == 8
    assert most["router"] == 1
    gpt = workload("gpt", 128, preset="125m")
    assert (
        max(sharding.shards for sharding in list_legal_shardings(gpt.operators[1], 128)) == 8
    )  # of 12 heads


def test_a_tied_head_reads_its_words_once_a_pass():
    """175B, 512 short sequences: 1.3 GB of words in half precision."""
    job = workload("gpt", 1, preset="175b", sequence=16, batch=512)
    head = job.operators[-1]
    words = 50257 * 12288 * 2
    assert head.shared_bytes == words
    assert head.parameter_bytes == 2 * 2 * 12288
    seconds = [
        compute_operator_seconds(head, samples, 1, Cluster(1, A100_80GB_BF16))[0] for samples in (1, 512)
    ]
    bandwidth, peak = 4 * 0.8 * 2.039e12, 4 * 156e12
    read = words + head.parameter_bytes + head.moved_bytes
    assert seconds[0] == pytest.approx(read / bandwidth + 10e-6, rel=1e-12)
    assert seconds[1] == pytest.approx(512 * head.forward_flops / peak + 10e-6, rel=1e-12)
    assert seconds[1] < 0.017


def test_caches_take_no_time():
    job = workload("serve", 1, layers=1, hidden=64, heads=4, kv_heads=2, inner=128, vocabulary=100, prompt=10)
    times = {made.kind: compute_operator_seconds(made, 5, 1, Cluster(1)) for made in job.operators}
    assert times.pop("cache") == (0.0, 0.0)
    assert min(forward_s for forward_s, _ in times.values()) > 0


def test_tokens_travel_to_their_experts_and_back():
    """Forward there and back, backward as well: 4 x B (1 - 1/n) x routed x s x h x 2 bytes."""
    shape = {
        "layers": 1,
        "sequence": 10,
        "hidden": 8,
        "heads": 2,
        "kv_heads": 1,
        "inner": 16,
        "vocabulary": 50,
    }
    job = workload("moe", 4, experts=4, **shape)
    traffic = sent(job, default_strategy(job, 4), 4)
    assert traffic.pairs.sum() == 4 * job.batch * 3 / 4 * 2 * 10 * 8 * 2


# -------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("dlmr", {}, "did you mean 'dlrm'"),
        ("dlrm", {"preset": "fig99"}, "it has fig11, fig16, testbed"),
        ("dlrm", {"tabels": 3}, "Did you mean 'tables'"),
        ("dlrm", {"tables": 0}, "at least 1"),
        ("dlrm", {"tables": -4}, "at least 1"),
        ("dlrm", {"tables": 2.5}, "give integers"),
        ("dlrm", {"tables": True}, "give integers"),
        ("dlrm", {"tables": "many"}, "give integers"),
        ("dlrm", {"bottom": ()}, "at least one layer"),
        ("dlrm", {"top": 5}, "top is 5; give widths of layers"),
        ("dlrm", {"tables": (5, 6)}, r"tables is \(5, 6\); give one whole number"),
        ("dlrm", {"dot": 5}, "dot is 5; give 1 \\(with\\) or 0"),
        ("serve", {"prefill": 7}, "prefill is 7; give 1 \\(with\\) or 0"),
        ("bert", {"sequence": 4096}, "4096 tokens, but vectors for 512 positions"),
        ("resnet50", {"image": 1}, "resnet50: an image of 1 is halved five times; use 224, or at least"),
        ("dlrm", {"bottom": (2048, 0)}, "at least 1"),
        ("dlrm", {"dot": 1}, "equal widths"),
        ("vgg16", {"image": 8}, "five poolings"),
        ("gpt", {"hidden": 100, "heads": 12}, "multiple of heads"),
        ("moe", {"kv_heads": 5}, "multiple of kv_heads"),
        ("moe", {"routed": 9}, "9 of 8 experts"),
        ("serve", {"prefill": 0, "decode": 0}, "both 0"),
        ("serve", {"experts": 2, "routed": 3}, "3 of 2 experts"),
    ],
)
def test_what_cannot_be_is_named(name, given, words):
    with pytest.raises(WorkloadError, match=words):
        workload(name, 4, **given)


def test_a_workload_runs_on_at_least_one_server():
    with pytest.raises(WorkloadError, match="at least 1"):
        workload("dlrm", 0)
    assert workload("dlrm", 1).batch == 512
    with pytest.raises(WorkloadError, match=r"dlrm on 4\.5 servers: give an integer of at least 1"):
        workload("dlrm", 4.5)


def test_batches_that_64_bits_do_not_hold_are_refused():
    with pytest.raises(WorkloadError, match="give a smaller batch"):
        workload("dlrm", 8, batch=4 * 10**17)


def test_parameters_override_presets():
    job = workload("dlrm", 4, preset="fig16", tables=3, bottom=[64, 128], batch=100)
    assert sum(operator.kind == "embedding" for operator in job.operators) == 3
    assert job.operators[job.index_by_operator["bottom1"]].parameter_bytes == 4 * (64 * 128 + 128)
    assert job.batch == 100


def test_settings_are_read_from_text():
    assert parse_model_settings("dlrm", {"tables": "8", "top": "64-1", "rows": "10_000"}) == {
        "tables": 8,
        "top": (64, 1),
        "rows": 10_000,
    }
    assert parse_model_settings("dlrm", {"top": "64"}) == {"top": (64,)}
    with pytest.raises(WorkloadError, match="widths joined by dashes"):
        parse_model_settings("dlrm", {"top": "wide"})


def test_a_workload_says_where_it_is_from():
    assert "figures 11 and 17" in workload("vgg16", 2, preset="fig11").origin
    assert workload("vgg16", 2).origin == "Simonyan and Zisserman 2015"
