"""The paths of the console."""

from django.urls import path

from api.console import palette
from api.console.decisions import decision_pages, evictions
from api.console.fleet import devices, fleet_map, node, node_list, throughput
from api.console.objects import records
from api.console.people import account, company, signing
from api.console.plans import change, node_advice, plan_pages, what_if
from api.console.pods import first_run, pod, pod_group, pod_list, reasons, submit
from api.console.scheduler import canaries, comparisons, plugins, policies

app_name = "console"
urlpatterns = [
    path("", fleet_map.page, name="fleet"),
    path("fleet/beside", fleet_map.beside, name="fleet-beside"),
    path("fleet/pace", throughput.part, name="fleet-pace"),
    path("fleet/examples", first_run.examples, name="examples"),
    path("fleet/columns", fleet_map.columns, name="fleet-columns"),
    path("nodes/", node_list.page, name="nodes"),
    path("nodes/csv", node_list.as_csv, name="nodes-csv"),
    path("nodes/advice", node_advice.page, name="node-advice"),
    path("nodes/<str:name>/", node.page, name="node"),
    path("devices/", devices.page, name="devices"),
    path("change", change.page, name="change"),
    path("plans/", plan_pages.listed, name="plans"),
    path("plans/<str:name>/", plan_pages.page, name="plan"),
    path("plans/<str:name>/act", plan_pages.act, name="plan-act"),
    path("plans/<str:name>/yaml", plan_pages.as_yaml, name="plan-yaml"),
    path("what-if/", what_if.page, name="what-if"),
    path("what-if/add", what_if.add, name="what-if-add"),
    path("what-if/remove", what_if.remove, name="what-if-remove"),
    path("what-if/share", what_if.share, name="what-if-share"),
    path("what-if/yaml", what_if.as_yaml, name="what-if-yaml"),
    path("pods/", pod_list.page, name="pods"),
    path("pods/new", submit.page, name="submit"),
    path("pods/<str:namespace>/<str:name>/", pod.page, name="pod"),
    path("pods/<str:namespace>/<str:name>/gates", pod.remove_gate, name="gates"),
    path("pods/<str:namespace>/<str:name>/permit", pod.permit, name="permit"),
    path("pods/<str:namespace>/<str:name>/why", reasons.why, name="why"),
    path("pods/<str:namespace>/<str:name>/why/helps", reasons.why_helps, name="why-helps"),
    path("pods/<str:namespace>/<str:name>/why/columns", reasons.why_columns, name="why-columns"),
    path(
        "pods/<str:namespace>/<str:name>/decisions/<int:number>",
        decision_pages.decision,
        name="decision",
    ),
    path("groups/<str:namespace>/<str:name>/", pod_group.page, name="pod-group"),
    path("decisions/", decision_pages.search, name="decisions"),
    path("decisions/csv", decision_pages.as_csv, name="decisions-csv"),
    path("waiting/", reasons.waiting, name="waiting"),
    path("evictions/", evictions.page, name="evictions"),
    path("evictions/brakes/<str:key>/", evictions.brake, name="brake"),
    path("changes/", records.changes, name="changes"),
    path("audit/", records.audit, name="audit"),
    path("policies/", policies.page, name="policies"),
    path("policies/who-can", policies.who_can, name="who-can"),
    path("policies/revisions", policies.revisions, name="revisions"),
    path("policies/plugins", plugins.page, name="plugins"),
    path("policies/comparisons", comparisons.page, name="comparisons"),
    path("policies/canaries/", canaries.listed, name="canaries"),
    path("policies/canaries/<str:name>/", canaries.page, name="canary"),
    path("policies/canaries/<str:name>/act", canaries.act, name="canary-act"),
    path("new", records.create, name="create"),
    path("objects/<str:name>/csv", records.objects_csv, name="objects-csv"),
    path("objects/<str:name>/", records.objects_of, name="objects"),
    path("objects/<str:kind_name>/<str:namespace>/<str:name>/", records.object_of, name="object"),
    path(
        "objects/<str:kind_name>/<str:namespace>/<str:name>/changes/<int:revision>",
        records.difference,
        name="difference",
    ),
    path("find", palette.find, name="find"),
    path("account", account.page, name="account"),
    path("here", account.here, name="here"),
    path("sign-in/code", signing.code, name="sign-in-code"),
    path("sign-in/company", company.begin, name="company"),
    path("sign-in/company/back", company.back, name="company-back"),
    path("sign-in", signing.SignIn.as_view(), name="sign-in"),
    path("sign-out", signing.sign_out, name="sign-out"),
]
