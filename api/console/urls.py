"""The paths of the console."""

from django.urls import path

from api.console import (
    change,
    evictions,
    fleet,
    node,
    nodes,
    palette,
    plans,
    pods,
    reasons,
    records,
    signing,
    what_if,
)

app_name = "console"
urlpatterns = [
    path("", fleet.page, name="fleet"),
    path("fleet/beside", fleet.beside, name="fleet-beside"),
    path("fleet/columns", fleet.columns, name="fleet-columns"),
    path("nodes/", nodes.page, name="nodes"),
    path("nodes/csv", nodes.as_csv, name="nodes-csv"),
    path("nodes/<str:name>/", node.page, name="node"),
    path("change", change.page, name="change"),
    path("plans/", plans.listed, name="plans"),
    path("plans/<str:name>/", plans.page, name="plan"),
    path("plans/<str:name>/act", plans.act, name="plan-act"),
    path("plans/<str:name>/yaml", plans.as_yaml, name="plan-yaml"),
    path("what-if/", what_if.page, name="what-if"),
    path("what-if/add", what_if.add, name="what-if-add"),
    path("what-if/remove", what_if.remove, name="what-if-remove"),
    path("what-if/share", what_if.share, name="what-if-share"),
    path("what-if/yaml", what_if.as_yaml, name="what-if-yaml"),
    path("pods/", pods.page, name="pods"),
    path("pods/<str:namespace>/<str:name>/", pods.pod, name="pod"),
    path("pods/<str:namespace>/<str:name>/why", reasons.why, name="why"),
    path(
        "pods/<str:namespace>/<str:name>/decisions/<int:number>",
        reasons.decision,
        name="decision",
    ),
    path("waiting/", reasons.waiting, name="waiting"),
    path("evictions/", evictions.page, name="evictions"),
    path("evictions/brakes/<str:key>/", evictions.brake, name="brake"),
    path("audit/", records.audit, name="audit"),
    path("policies/", records.policies, name="policies"),
    path("objects/<str:name>/", records.objects_of, name="objects"),
    path("objects/<str:kind_name>/<str:namespace>/<str:name>/", records.object_of, name="object"),
    path("find", palette.find, name="find"),
    path("sign-in", signing.SignIn.as_view(), name="sign-in"),
    path("sign-out", signing.sign_out, name="sign-out"),
]
