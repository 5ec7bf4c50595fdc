"""The stores that the tests of integrations run on."""

from tests.client.conftest import shared_url

__all__ = ["shared_url"]
