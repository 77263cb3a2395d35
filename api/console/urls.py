"""The paths of the console."""

from django.urls import path

from api.console import fleet, nodes, palette, signing

app_name = "console"
urlpatterns = [
    path("", fleet.page, name="fleet"),
    path("fleet/beside", fleet.beside, name="fleet-beside"),
    path("fleet/columns", fleet.columns, name="fleet-columns"),
    path("nodes/", nodes.page, name="nodes"),
    path("nodes/csv", nodes.as_csv, name="nodes-csv"),
    path("find", palette.find, name="find"),
    path("sign-in", signing.SignIn.as_view(), name="sign-in"),
    path("sign-out", signing.sign_out, name="sign-out"),
]
