"""Whatever is packed is read again: entries, versions that held at a revision, moments."""

from hypothesis import given
from hypothesis import strategies as st

from clusterstate.change_log.blocks import Entry, Index, Moments, key_of, mark_of, pack
from clusterstate.objects.rules.glances import Glance

NAMES = st.sampled_from(["a", "a-b", "a.b", "b", "ä"])
ENTRIES = st.lists(
    st.builds(
        Entry,
        revision=st.integers(1, 1 << 40),
        at=st.integers(0, 1 << 52),
        verb=st.integers(1, 3),
        object_id=st.integers(1, 1 << 62),
        previous=st.just(0),
        namespace=NAMES | st.just(""),
        name=NAMES,
        actor=NAMES | st.just(""),
        impersonator=st.just("") | NAMES,
        cause=st.sampled_from(["", "c"]),
        node_name=NAMES | st.just(""),
        body=st.none() | st.binary(max_size=20),
        glance=st.none() | st.builds(Glance, NAMES | st.just(""), NAMES | st.just("")),
    ).flatmap(
        lambda one: st.builds(
            lambda lasted: _lasting(one, lasted), st.integers(0, one.revision - 1)
        )
    ),
    min_size=1,
    max_size=12,
    unique_by=lambda one: one.revision,
)


def _lasting(one: Entry, lasted: int) -> Entry:
    values = {name: getattr(one, name) for name in Entry.__struct_fields__}
    return Entry(**{**values, "previous": one.revision - lasted if lasted else 0})


@given(ENTRIES, st.integers(0, 1 << 40), st.integers(0, 1 << 40))
def test_what_is_packed_is_read_again(entries: list[Entry], revision: int, upto: int) -> None:
    entries.sort(key=lambda one: (one.key, one.revision))
    block = pack(entries)
    index = Index(block.index)
    assert len(index) == len(entries) == block.entries
    known = [place for place in range(len(entries)) if index.has_body(place)]
    bodies = dict(zip(known, index.bodies(block.body, known), strict=True))
    assert [index.entry(place, bodies.get(place)) for place in range(len(entries))] == entries
    held = [
        place
        for place, one in enumerate(entries)
        if one.previous and one.previous <= revision < one.revision <= upto
    ]
    assert index.alive_at(revision, upto) == held
    for place, (name, text) in zip(held, index.glances(held), strict=True):
        one = entries[place].glance
        told = None if text < 0 else Glance(index.words[name], index.words[text])
        assert told == index.glance(place) == one
        assert index.may_be_on(place, "a") or (one or entries[place]).node_name != "a"
        assert index.may_be_on(place, "") or (one is not None and one.node_name)
    for one in entries:
        assert block.first_key <= one.key <= block.last_key
        assert mark_of(one.key) in block.marks
        places = index.named(one.namespace, one.name)
        assert [entries[place] for place in places] == [
            each for each in entries if each.key == one.key
        ]
    caused = [one.revision for one in index.with_cause("c")]
    assert caused == [one.revision for one in entries if one.cause == "c"]
    assert index.named("no", "body") == []
    assert (block.first_revision, block.last_revision) == (
        min(one.revision for one in entries), max(one.revision for one in entries),
    )  # fmt: skip


@given(st.lists(st.tuples(NAMES | st.just(""), NAMES), min_size=2, max_size=6))
def test_keys_are_ordered_as_the_pairs_are(pairs: list[tuple[str, str]]) -> None:
    assert sorted(pairs) == sorted(pairs, key=lambda pair: key_of(*pair))


@given(
    st.dictionaries(st.integers(1, 1 << 40), st.integers(0, 1 << 52), min_size=1, max_size=12),
    st.integers(0, 1 << 52),
    st.integers(0, 1 << 40),
)
def test_moments_are_found(changes: dict[int, int], at: int, revision: int) -> None:
    pairs = sorted(changes.items())
    moments = Moments.unpack(Moments.of(pairs).pack())
    assert moments.last_until(at) == max((one for one, when in pairs if when <= at), default=None)
    assert moments.first_after(revision) == min(
        (one for one, _ in pairs if one > revision), default=None
    )
