"""Where events may be sent to."""

import pytest

from clusterstate.objects.rules.webhook_targets import AllowedTargets, parse


@pytest.mark.parametrize(
    ("words", "host", "addresses", "chosen"),
    [
        (["hooks.example"], "hooks.example", ["10.1.1.1"], "10.1.1.1"),
        (["*.example"], "a.hooks.example", ["10.1.1.1"], "10.1.1.1"),
        (["*.example"], "example", ["10.1.1.1"], None),
        (["hooks.example"], "badhooks.example", ["10.1.1.1"], None),
        (["10.0.0.0/8"], "any", ["192.168.0.1", "10.1.1.1"], "10.1.1.1"),
        (["10.1.1.1"], "any", ["10.1.1.2"], None),
        (["public"], "any", ["93.184.215.14"], "93.184.215.14"),
        (["public"], "any", ["127.0.0.1", "169.254.169.254", "10.0.0.1", "::1", "fe80::1"], None),
        (["public"], "any", ["::ffff:127.0.0.1", "224.0.0.1", "100.64.0.1", "0.0.0.0"], None),
        (["public"], "any", ["64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::a00:1"], None),
        (["public"], "any", ["2002:7f00:1::", "::7f00:1", "::ffff:0:a00:1", "fec0::1"], None),
        (["public"], "any", ["192.0.0.192"], None),
        (["public"], "any", ["64:ff9b::5db8:d70e"], "64:ff9b::5db8:d70e"),
        (["public"], "any", ["2606:2800:220:1::1"], "2606:2800:220:1::1"),
        (["64:ff9b::/96"], "any", ["64:ff9b::a00:1"], "64:ff9b::a00:1"),
        ([], "any", ["93.184.215.14"], None),
    ],
)
def test_an_address_is_chosen_only_where_it_is_allowed(words, host, addresses, chosen):
    assert AllowedTargets(words).choose(host, addresses) == chosen


@pytest.mark.parametrize(
    "url",
    ["", "hooks.example", "https://", "https:///x", "https://h:99999/", "https://h/#a",
     "https://h/a b", "https://u@h/", "file:///etc/passwd", "https://h/\n"],
)  # fmt: skip
def test_a_url_that_names_no_receiver_is_refused(url):
    with pytest.raises(ValueError, match=r"."):
        parse(url)


def test_a_url_is_read():
    target = parse("https://Hooks.Example.:8443/a/b?c=d")
    assert (target.host, target.port, target.path) == ("hooks.example", 8443, "/a/b?c=d")
