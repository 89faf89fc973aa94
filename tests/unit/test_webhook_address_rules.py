"""Which addresses are public, compared with the registry's own list, and that wrapping an address changes nothing."""

from ipaddress import IPv4Address, IPv6Address, ip_network

from hypothesis import example, given
from hypothesis import strategies as st

from penstock.events.addresses import AddressRules, is_public, stands_for

# Addresses of IPv4 that IANA does not list as globally reachable, and the multicast range.
SPECIAL = [
    ip_network(text)
    for text in [
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
    ]
]
NEAR = st.sampled_from(SPECIAL).flatmap(
    lambda network: st.sampled_from(
        [int(network[0]) - 1, int(network[0]), int(network[-1]), int(network[-1]) + 1]
    ).filter(lambda value: 0 <= value < 2**32)
)
ADDRESSES = st.one_of(NEAR, st.integers(0, 2**32 - 1)).map(IPv4Address)
RULES = st.sampled_from(
    [
        AddressRules(),
        AddressRules(loopback=True),
        AddressRules(allow=(ip_network("10.0.0.0/8"), ip_network("169.254.0.0/16"))),
    ]
)
WRAPPERS = {
    "mapped": lambda address: IPv6Address((0xFFFF << 32) | int(address)),
    "NAT64": lambda address: IPv6Address((0x64FF9B << 96) | int(address)),
    "6to4": lambda address: IPv6Address((0x2002 << 112) | (int(address) << 80) | 1),
}


@given(ADDRESSES)
def test_an_ipv4_address_is_public_unless_the_registry_lists_it(address: IPv4Address) -> None:
    assert is_public(address) is not any(address in network for network in SPECIAL)


@given(ADDRESSES, RULES, st.sampled_from(sorted(WRAPPERS)))
@example(IPv4Address("169.254.169.254"), AddressRules(), "NAT64")
def test_a_wrapped_address_is_judged_as_what_it_wraps(address: IPv4Address, rules: AddressRules, kind: str) -> None:
    wrapped = WRAPPERS[kind](address)
    assert stands_for(wrapped) == (address,)
    assert rules.accept(wrapped) is rules.accept(address)


@given(ADDRESSES, RULES)
def test_a_tunnel_end_is_no_way_around_the_rules(address: IPv4Address, rules: AddressRules) -> None:
    inside = int(address)
    isatap = IPv6Address((0x2606_2800_0220_0001 << 64) | (0x5EFE << 32) | inside)
    teredo = IPv6Address((0x2001_0000 << 96) | (0x0808_0808 << 64) | (inside ^ 0xFFFF_FFFF))
    assert rules.accept(isatap) is rules.accept(address)
    assert not rules.accept(teredo)


@given(st.integers(0, 2**128 - 1).map(IPv6Address))
def test_outside_of_global_unicast_nothing_of_ipv6_is_public(address: IPv6Address) -> None:
    assert not is_public(address) or address in ip_network("2000::/3")
