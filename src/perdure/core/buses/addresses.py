"""Which network addresses a webhook may connect to."""

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Final

_NAT64: Final = IPv6Network("64:ff9b::/96")
"""Addresses that a gateway translates to IPv4: the last 32 bits are the address."""


def is_public(text: str) -> bool:
    """Whether this is an address of the public internet, also after all translations of IPv6 to IPv4."""
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return False
    return all(each.is_global and not each.is_multicast for each in _meanings(address))


def _meanings(address: IPv4Address | IPv6Address) -> list[IPv4Address | IPv6Address]:
    """The address that packets are sent to; for one that carries an address of IPv4, that one too."""
    if isinstance(address, IPv4Address):
        return [address]
    if address.ipv4_mapped is not None:
        return [address.ipv4_mapped]
    if address in _NAT64:
        return [IPv4Address(int(address) & 0xFFFFFFFF)]
    carried = [address.sixtofour, *(address.teredo or ())]
    return [address, *(each for each in carried if each is not None)]
