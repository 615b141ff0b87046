"""Configuration that is handed on: uv finds packages where pip finds them."""

from __future__ import annotations

import pytest

from tools.installation.pip_settings import list_configuration_files, read_configuration, translate_settings

DEBUGGED = """env_var:
  PIP_CERT='/etc/one.crt'
env:
  {named}, exists: True
    global.timeout: 20
global:
  /etc/xdg/pip/pip.conf, exists: False
  {machine}, exists: True
    global.cert: /etc/two.crt
site:
user:
  {user}, exists: True
    global.find-links: /srv/wheels
"""


def variables(options, environ=None, **more):
    return dict(translate_settings(options, environ or {}, **more).environment)


@pytest.fixture
def options(tmp_path):
    """Return the settings of three files and the environment, whatever the order of the files' names."""
    texts = {
        "machine": "[global]\ncert = /etc/two.crt\ntimeout = 15\nfind-links = /srv/wheels\nno_index = true\n",
        "user": "[global]\ntimeout = 18\nextra-index-url =\n    https://a.example/simple\n    https://b.example/simple\n"
        "[install]\nfind-links = https://c.example/it's\nno-index = false\n"
        "[download]\nindex-url = https://not.for.installing/simple\n",
        "named": "[global]\ntimeout = 20\n",
    }
    paths = {name: tmp_path / f"{order}.conf" for order, name in enumerate(("named", "user", "machine"))}
    for name, path in paths.items():
        path.write_text(texts[name])
    files = list_configuration_files(DEBUGGED.format(**paths))
    assert files == [paths["machine"], paths["user"], paths["named"]]
    environ = {
        "PIP_CERT": "/etc/one.crt",
        "PIP_DEFAULT_TIMEOUT": "180",
        "PIP_FIND_LINKS": "",
        "HOME": "/root",
    }
    return read_configuration(files, environ)


def test_a_later_file_and_a_later_section_replace_what_was_said_before_and_an_empty_value_does_not(options):
    assert options == {
        "cert": "/etc/one.crt",
        "default-timeout": "180",
        "extra-index-url": "\nhttps://a.example/simple\nhttps://b.example/simple",
        "find-links": "https://c.example/it's",
        "no-index": "false",
        "timeout": "20",
    }


def test_one_index_more_for_torch_stands_before_those_of_uv():
    environ = {"UV_INDEX": "https://a.example/simple"}
    assert variables({"index-url": "https://b.example/simple"}, environ) == {}
    assert variables({}, environ, torch_index="https://t.example/cpu") == {
        "UV_INDEX": "https://t.example/cpu https://a.example/simple",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }


def test_no_configuration_leaves_uv_as_it_is():
    assert translate_settings(read_configuration([], {}), {}) == translate_settings({}, {})
    assert variables({}) == {}


def test_one_index_replaces_that_of_python():
    assert variables({"index-url": "https://me:word@a.example/simple"}) == {
        "UV_DEFAULT_INDEX": "https://me:word@a.example/simple"
    }


@pytest.mark.parametrize("gap", [" ", "\n", "\n  "])
def test_all_indexes_are_asked_in_the_order_of_pip(gap):
    extra = f"https://a.example/simple{gap}file:///srv/simple"
    assert variables({"extra-index-url": extra}) == {
        "UV_INDEX": "https://pypi.org/simple https://a.example/simple",
        "UV_DEFAULT_INDEX": "file:///srv/simple",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }


def test_the_index_for_torch_is_one_more():
    found = variables({"index-url": "https://a.example/simple"}, torch_index="https://t.example/cpu")
    assert found == {
        "UV_INDEX": "https://a.example/simple",
        "UV_DEFAULT_INDEX": "https://t.example/cpu",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }


def test_no_index_leaves_the_folders_alone(tmp_path):
    options = {"no-index": "Yes", "index-url": "https://a.example/simple", "find-links": str(tmp_path)}
    found = translate_settings(options, {})
    assert found.options == ("--no-index",)
    assert found.environment == {"UV_FIND_LINKS": tmp_path.as_uri()}
    assert translate_settings({"no-index": "0"}, {}).options == ()


def test_folders_of_wheels_are_told_apart_though_their_names_have_spaces_and_commas(tmp_path, monkeypatch):
    for name in ("plain", "with space", "with,comma"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path)
    links = f"plain\n{tmp_path}/with,comma {tmp_path.as_uri()}/with%20space https://a.example/x,y"
    assert variables({"find-links": links})["UV_FIND_LINKS"].split(",") == [
        f"{tmp_path.as_uri()}/plain",
        f"{tmp_path.as_uri()}/with%2Ccomma",
        f"{tmp_path.as_uri()}/with%20space",
        "https://a.example/x%2Cy",
    ]


def test_the_home_folder_is_found(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "wheels").mkdir()
    assert variables({"find-links": "~/wheels"}) == {"UV_FIND_LINKS": f"{tmp_path.as_uri()}/wheels"}


def test_a_folder_that_is_not_there_is_left_out_and_named(tmp_path):
    found = translate_settings({"find-links": f"{tmp_path} {tmp_path}/gone"}, {})
    assert found.environment == {"UV_FIND_LINKS": tmp_path.as_uri()}
    assert found.notes == (f"pip's find-links names {tmp_path}/gone, which does not exist",)
    assert variables({"find-links": f"{tmp_path}/gone"}) == {}


def test_what_is_set_for_uv_itself_stays(tmp_path):
    options = {"index-url": "https://a.example/simple", "find-links": str(tmp_path), "timeout": "3"}
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_INDEX", "UV_EXTRA_INDEX_URL"):
        environ = {name: "https://u.example/simple", "UV_HTTP_TIMEOUT": "60"}
        assert variables(options, environ) == {"UV_FIND_LINKS": tmp_path.as_uri()}


def test_the_connection_is_that_of_pip():
    options = {
        "trusted-host": "a.example\nb.example:8080",
        "default-timeout": "12.5",
        "retries": "7",
        "client-cert": "/etc/me.pem",
        "proxy": "http://proxy.example:3128",
        "keyring-provider": "subprocess",
    }
    proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), options["proxy"])
    assert variables(options) == proxies | {
        "UV_INSECURE_HOST": "a.example b.example:8080",
        "UV_HTTP_TIMEOUT": "13",
        "UV_HTTP_RETRIES": "7",
        "UV_KEYRING_PROVIDER": "subprocess",
        "SSL_CLIENT_CERT": "/etc/me.pem",
    }


CERTIFICATES = {
    "pip's own come first": (
        {"cert": "/pip.crt"},
        {"SSL_CERT_FILE": "/other.crt"},
        {"SSL_CERT_FILE": "/pip.crt"},
    ),
    "then those that uv is told of": ({}, {"SSL_CERT_FILE": "/s.crt", "REQUESTS_CA_BUNDLE": "/r.crt"}, {}),
    "then those of a folder": ({}, {"SSL_CERT_DIR": "/etc", "CURL_CA_BUNDLE": "/c.crt"}, {}),
    "then those that pip is told of": (
        {},
        {"CURL_CA_BUNDLE": "/c.crt", "REQUESTS_CA_BUNDLE": "/r.crt"},
        {"SSL_CERT_FILE": "/r.crt"},
    ),
    "then the system's": ({}, {}, {"UV_SYSTEM_CERTS": "1"}),
}


@pytest.mark.parametrize(("options", "environ", "expected"), CERTIFICATES.values(), ids=CERTIFICATES)
def test_the_certificates_believed(options, environ, expected):
    assert variables(options, environ, has_system_certificates=True) == expected


def test_a_folder_of_certificates_is_a_folder(tmp_path):
    assert variables({"cert": str(tmp_path)}) == {"SSL_CERT_DIR": str(tmp_path)}
