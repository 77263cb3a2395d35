"""The way of a pod, from its POST until it is bound, pays for nothing that is kept or guarded."""

from tests.builders import make_node, make_pod
from tests.roundtrips import counted


def test_the_past_and_brakes_cost_no_statement_on_the_way_of_a_pod(api, runner, settings):
    api.post("/api/v1/nodes", make_node("a").offers(cpu="8", pods="20").manifest).ok(201)

    def waits(name):
        with counted() as trips:
            api.post(
                "/api/v1/namespaces/ns/pods",
                make_pod(name).in_namespace("ns").asks(cpu="1").manifest,
            ).ok(201)
            runner.turn()
        pod = api.get(f"/api/v1/namespaces/ns/pods/{name}").ok()
        assert pod["spec"]["nodeName"] == "a"
        return trips.number

    def keeping(hours, percent):
        settings.PAST_HOURS = hours
        settings.BRAKE_ZONE_PERCENT = settings.BRAKE_NAMESPACE_PERCENT = percent
        settings.BRAKE_OWNER_PERCENT = percent

    waits("first")  # fills caches
    keeping(0, 100)
    without = waits("without")
    keeping(168, 30)
    assert waits("with") == without > 5
