"""CEL selectors of devices: compiling, matching, the estimate of the cost and the cost."""

from clusterstate.objects.cel.devices import CompileError, Device, EvaluationError, compile_selector


def check(case):
    features, device = case["features"], case["device"]
    stored = case["env"] == "stored"
    try:
        selector = compile_selector(
            case["expression"],
            lists=stored or features["listTypeAttributes"],
            multiple_allocations=stored or features["consumableCapacity"],
        )
    except CompileError as error:
        # Which tokens a parser would rather have is its own matter.
        text, wanted = str(error), case["expect"].get("compileError", "")
        same = text == wanted or ("Syntax error" in text and "Syntax error" in wanted)
        return None if same else f"compile error {text!r}"
    found = {"maxCost": selector.max_cost}
    try:
        found["match"], found["actualCost"] = selector.matches(
            Device(device.get("driver", ""), device)
        )
    except EvaluationError as error:
        found["matchError"] = str(error)
    return None if found == case["expect"] else f"got {found}, expected {case['expect']}"
