"""Accounts: where they are found, and that nobody else reads them."""

from __future__ import annotations

import pytest

from ocs_drivers.credentials import Credentials, find_credentials
from ocs_drivers.errors import CredentialsError

FACTORY = Credentials("admin", "factory")
DEVICE = "calient+tl1://10.0.0.7:3082"
VARIABLES = ("LIGHTBED_OCS_USER", "LIGHTBED_OCS_PASSWORD", "LIGHTBED_OCS_CREDENTIALS")


@pytest.fixture(autouse=True)
def empty_surroundings(monkeypatch, tmp_path):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def accounts(monkeypatch, tmp_path):
    def write(text: str, mode: int = 0o600):
        path = tmp_path / "accounts.toml"
        path.write_text(text)
        path.chmod(mode)
        monkeypatch.setenv("LIGHTBED_OCS_CREDENTIALS", str(path))
        return path

    return write


def found(given=None, device=DEVICE):
    return find_credentials(device, given, factory=FACTORY)


def test_the_factory_account_is_the_last_resort():
    assert found() == FACTORY


def test_what_is_given_goes_before_all_else(monkeypatch, accounts):
    accounts('["*"]\nuser = "file"\npassword = "f"\n')
    monkeypatch.setenv("LIGHTBED_OCS_USER", "environment")
    assert found(Credentials("me", "mine")) == Credentials("me", "mine")


def test_the_environment_goes_before_the_file(monkeypatch, accounts):
    accounts('["*"]\nuser = "file"\npassword = "f"\n')
    monkeypatch.setenv("LIGHTBED_OCS_PASSWORD", "e")
    assert found() == Credentials("admin", "e")


def test_the_first_pattern_that_fits_counts(accounts):
    accounts(
        '["polatis*"]\nuser = "p"\npassword = "1"\n'
        '["*://10.0.0.7*"]\nuser = "seven"\npassword = "2"\n'
        '["*"]\nuser = "any"\npassword = "3"\n'
    )
    assert found() == Credentials("seven", "2")
    assert found(device="polatis+tl1://10.0.0.7:3082") == Credentials("p", "1")
    assert found(device="telescent+cli://10.0.0.9") == Credentials("any", "3")


def test_the_file_in_the_home_directory_is_found(tmp_path):
    path = tmp_path / ".config" / "lightbed" / "credentials.toml"
    path.parent.mkdir(parents=True)
    path.write_text('["*"]\nuser = "home"\npassword = "h"\n')
    path.chmod(0o600)
    assert found() == Credentials("home", "h")


@pytest.mark.parametrize("mode", [0o640, 0o604])
def test_a_file_that_others_can_read_is_refused(accounts, mode):
    path = accounts('["*"]\nuser = "u"\npassword = "hidden"\n', mode)
    with pytest.raises(CredentialsError, match=f"chmod 600 {path}"):
        found()


@pytest.mark.parametrize(
    "text",
    ['["*"]\nuser = "u"\npassword = hidden\n', '["*"]\nuser = "u"\nsecret = "hidden"\n', '"*" = "hidden"\n'],
)
def test_a_file_in_another_form_is_refused_without_showing_it(accounts, text):
    accounts(text)
    with pytest.raises(CredentialsError) as caught:
        found()
    assert "hidden" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_named_file_must_be_there(monkeypatch, tmp_path):
    monkeypatch.setenv("LIGHTBED_OCS_CREDENTIALS", str(tmp_path / "nowhere.toml"))
    with pytest.raises(CredentialsError, match="file"):
        found()


def test_a_password_is_in_no_repr():
    assert "hidden" not in repr(Credentials("u", "hidden"))
