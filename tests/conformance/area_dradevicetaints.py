"""What the scheduler sees of slices under DeviceTaintRules.

Until v1.37 Kubernetes reads a rule without a selector as one with an empty selector, and so do the
recorded cases.
"""

from clusterstate.objects.dra.slicetracker import patched_slices


def check(case):
    objects = {"ResourceSlice": {}, "DeviceTaintRule": {}, "DeviceClass": {}}
    for event in case["events"]:
        one = event.get("new") or event["old"]
        if event["op"] == "delete":
            objects[event["kind"]].pop(one["metadata"]["name"], None)
        else:
            if event["kind"] == "DeviceTaintRule":
                one["spec"].setdefault("deviceSelector", {})
            objects[event["kind"]][one["metadata"]["name"]] = one
    found = patched_slices(objects["ResourceSlice"].values(), objects["DeviceTaintRule"].values())
    found.sort(key=lambda one: one["metadata"]["name"])
    expect = sorted(case["expect"]["patchedSlices"], key=lambda one: one["metadata"]["name"])
    return None if found == expect else f"got {found}, expected {expect}"
