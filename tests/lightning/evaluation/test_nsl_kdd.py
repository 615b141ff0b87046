"""NSL-KDD: what training knows decides how a connection is encoded."""

import gzip

import numpy as np
import pytest

from lightning.errors import DatasetError
from lightning.evaluation import load_dataset
from lightning.evaluation.nsl_kdd import COUNT_COLUMNS, encode_rows, fit_encoding, parse_rows, read_labels

SRC_BYTES, ERROR_RATE = 4, 24


def line(protocol="tcp", service="http", flag="SF", label="normal", difficulty=True, **values):
    """Return one connection; `f4=7` is its feature 4."""
    words = ["0"] * 41
    words[1:4] = protocol, service, flag
    for name, value in values.items():
        words[int(name[1:])] = str(value)
    return ",".join([*words, label, *(["20"] if difficulty else [])])


def rows(*lines):
    return parse_rows("\n".join(lines).encode())


def column(encoding, feature):
    """Return where a number lands: categories 1, 2 and 3 are elsewhere."""
    return feature - 3 if feature > 3 else feature


@pytest.fixture
def training():
    return rows(
        line(f4=99, f24=0.5),
        line("udp", "dns", f4=9),
        line("tcp", "ftp", "S0", "neptune", f22=511),
    )


def test_counts_are_logarithms_and_rates_stay(training):
    encoding = fit_encoding(training)
    found = encode_rows(training, encoding)
    assert found[:, column(encoding, SRC_BYTES)] == pytest.approx([1, 0.5, 0])  # log 100, log 10, log 1
    assert found[:, column(encoding, ERROR_RATE)] == pytest.approx([0.5, 0, 0])
    assert found.dtype == np.float32


def test_categories_of_training_are_columns(training):
    encoding = fit_encoding(training)
    assert encoding.categories == (("tcp", "udp"), ("dns", "ftp", "http"), ("S0", "SF"))
    assert encoding.column_count == 38 + 2 + 3 + 2
    assert encode_rows(training, encoding)[:, 38:].tolist() == [
        [1, 0, 0, 0, 1, 0, 1],
        [0, 1, 1, 0, 0, 0, 1],
        [1, 0, 0, 1, 0, 1, 0],
    ]


def test_what_training_never_saw_is_dark_or_cut(training):
    encoding = fit_encoding(training)
    (found,) = encode_rows(rows(line("icmp", "smtp", f4=10**9, f24=3)), encoding)
    assert found[38:].sum() == 1  # the flag alone is known
    assert found[column(encoding, SRC_BYTES)] == 1
    assert found[column(encoding, ERROR_RATE)] == 1


def test_no_input_is_negative():
    rng = np.random.default_rng(3)
    made = [line(**{f"f{i}": rng.integers(-2, 10**6) for i in COUNT_COLUMNS}) for _ in range(50)]
    found = encode_rows(rows(*made), fit_encoding(rows(*made)))
    assert (found.min(), found.max()) == (0, 1)


def test_every_attack_is_an_attack(training):
    assert read_labels(training).tolist() == [0, 0, 1]
    assert read_labels(rows(line(label="saint", difficulty=False))).tolist() == [1]


def test_the_folder_gives_both_parts(tmp_path, training):
    (tmp_path / "KDDTrain+_20Percent.txt.gz").write_bytes(
        gzip.compress("\n".join([line(f4=99), line("udp", label="smurf")]).encode())
    )
    (tmp_path / "KDDTest+.csv").write_text(line(f4=9, label="mscan") + "\n")
    found = load_dataset(f"nsl-kdd:{tmp_path}")
    assert found.classes == ("normal", "attack")
    assert (found.y.tolist(), found.train_y.tolist()) == ([1], [0, 1])
    assert found.x.shape == (1, 38 + 2 + 1 + 1)
    assert found.x[0, column(None, SRC_BYTES)] == pytest.approx(0.5)
    assert sorted(found.origin) == ["KDDTest+.csv", "KDDTrain+_20Percent.txt.gz"]


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("1,2,3", "line 1 has 3 columns"),
        (line() + "\n" + line() + ",more,and more", "line 2 has 45 columns"),
        ("", "no lines"),
    ],
)
def test_other_files_are_refused(text, reported):
    with pytest.raises(DatasetError, match=reported):
        parse_rows(text.encode())


@pytest.mark.parametrize(
    "content", [gzip.compress(b"0,tcp," * 99, mtime=0)[:-9], line().encode()[:20] + b"\xff\xfe"]
)
def test_damaged_files_are_refused(content):
    with pytest.raises(DatasetError, match="cannot be read"):
        parse_rows(content)


def test_a_feature_that_is_no_number_is_refused():
    with pytest.raises(DatasetError, match="'many'"):
        fit_encoding(rows(line(f4="many")))


@pytest.mark.parametrize("missing", ["KDDTrain", "KDDTest"])
def test_a_missing_file_is_named(tmp_path, missing):
    for name in ("KDDTrain+.txt", "KDDTest+.txt"):
        if missing not in name:
            (tmp_path / name).write_text(line())
    with pytest.raises(DatasetError, match=missing):
        load_dataset(f"nsl-kdd:{tmp_path}")
    with pytest.raises(DatasetError, match="is not a folder"):
        load_dataset(f"nsl-kdd:{tmp_path / 'nowhere'}")
