"""Raw inputs take the shape of the model, and nothing is cut, padded or scaled by itself."""

import numpy as np
import pytest

from lightning.errors import InputError
from lightning.evaluation.images import find_image_size, fit_axes, read_image, read_input
from lightning.networks import Network, Preprocessing


def network(*shape, layout="as-is"):
    given = Preprocessing(layout=layout)
    return Network("net", (), {}, "x", "x", {"x": shape}, given)


def test_images_become_rows_and_rows_images():
    x = np.arange(2 * 6 * 4).reshape(2, 6, 4)
    assert fit_axes(x, network(24)).tolist() == x.reshape(2, 24).tolist()
    assert fit_axes(x, network(1, 6, 4)).tolist() == x[:, None].tolist()
    assert fit_axes(x, network(1, 6, 4, layout="HWC")).tolist() == x[..., None].tolist()
    assert fit_axes(x, network(6, 4)) is x
    with pytest.raises(InputError, match="an image has 6 x 4 values, but net takes"):
        fit_axes(x, network(5, 5))


@pytest.fixture
def picture(tmp_path):
    image = pytest.importorskip("PIL.Image", reason="pillow reads images")
    levels = np.random.default_rng(2).integers(0, 256, (6, 4)).astype(np.uint8)
    image.fromarray(levels).save(tmp_path / "grey.png")
    colours = np.stack([levels, 255 - levels, levels // 2], axis=-1)
    image.fromarray(colours).save(tmp_path / "colour.png")
    return tmp_path, levels, colours


def test_grey_is_grey_and_colours_come_where_the_model_has_them(picture):
    folder, levels, colours = picture
    assert (read_input(folder / "grey.png", network(1, 6, 4)) == levels[None, None]).all()
    assert (read_input(folder / "colour.png", network(3, 6, 4)) == colours.transpose(2, 0, 1)[None]).all()
    assert (read_input(folder / "colour.png", network(3, 6, 4, layout="HWC")) == colours[None]).all()
    assert read_input(folder / "colour.png", network(6, 4)).shape == (1, 6, 4)


def test_another_size_is_refused_unless_scaling_is_asked_for(picture):
    folder, *_ = picture
    with pytest.raises(InputError, match="has 4 x 6 pixels, but the model takes 8 x") as caught:
        read_input(folder / "grey.png", network(64))
    assert "--resize" in caught.value.hint
    assert read_input(folder / "grey.png", network(64), resize=True).shape == (1, 64)


def test_a_plain_image_stays_plain_when_it_is_scaled(tmp_path):
    image = pytest.importorskip("PIL.Image", reason="pillow reads images")
    image.new("L", (9, 9), 77).save(tmp_path / "plain.png")
    assert (read_image(tmp_path / "plain.png", (4, 4), resize=True) == 77).all()


def test_an_array_is_taken_as_it_is(tmp_path):
    values = np.float32([[1.5, -2], [3, 4]])
    np.save(tmp_path / "values.npy", values)
    assert read_input(tmp_path / "values.npy", network(4)).tolist() == [[1.5, -2, 3, 4]]
    with pytest.raises(InputError, match="an image has 2 x 2 values, but net takes"):
        read_input(tmp_path / "values.npy", network(5))


def test_other_files_are_refused(tmp_path):
    pytest.importorskip("PIL", reason="pillow reads images")
    for name, reported in (
        ("text.png", "is not an image"),
        ("text.npy", "is not an array"),
        ("not.npy", "there is no file"),
        ("not.png", "there is no file"),
    ):
        if not name.startswith("not"):
            (tmp_path / name).write_text("no picture, no array")
        with pytest.raises(InputError, match=reported):
            read_input(tmp_path / name, network(4))
    with pytest.raises(InputError, match="the model takes 118 values, not an image"):
        read_input(tmp_path / "text.png", network(118))


@pytest.mark.parametrize(
    ("shape", "size"), [((3, 8, 6), (6, 8, 3)), ((8, 6, 1), (6, 8, 1)), ((5, 7), (7, 5, 1))]
)
def test_the_size_of_images_follows_from_the_input(shape, size):
    assert find_image_size(shape) == size


@pytest.mark.parametrize("shape", [(118,), (4, 8, 8), (2, 3, 4, 5)])
def test_what_is_not_an_image_is_reported(shape):
    with pytest.raises(InputError, match=r"Give the input as an \.npy file"):
        find_image_size(shape)
