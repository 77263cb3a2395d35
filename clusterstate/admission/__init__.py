"""Admission: takes a manifest and returns the one to store, or every error in it.

This package has the rules that an object must meet before it is stored. It is pure: it reads no
clock, no database and no settings module; what a rule must look up (a RuntimeClass, a namespace) it
reads from a `Context`, which the actions provide. It never writes.

``chain.admit`` is its one main function. The order is that of Kubernetes' API server (v1.36)::

    strip nulls, -> API defaults -> mutating plugins -> validation -> validating plugins
    write amounts   defaults.py     plugins/            validation/   plugins/

* *Defaults* (``defaults.py``) fill in what the API promises to fill in.
* *Plugins* are one module each, with the name and the rule of Kubernetes' admission plugin. Each
  is a function of a `Request`; it edits ``request.manifest`` or raises.
* *Validation* (``validation/``) returns every wrong field as a `FieldError`; ``admit`` raises them
  together as one `Invalid`. Plugins raise `Forbidden`, `NotFound` or `Conflict` for the first
  reason they meet, as Kubernetes does.

The actions call ``admit`` for every write: REST, admin, scheduler and simulations. Ordinary pods
are the hot path, so the rules work on the decoded JSON directly, read a field only where it is
present, and cache the verdicts on names, labels and quantities.

::

    chain                        ``admit``: the order of everything
    request                      the request, its user, and what may be looked up
    defaults, stored_defaults    API defaults of pods and core kinds; of all other kinds
    rounding                     amounts are stored in whole thousandths
    plugins                      admission plugins, one module each
    validation                   errors of an object
    warnings                     what is accepted and has another effect than its author may expect
"""

from clusterstate.admission.chain import AdmittedObject, admit
from clusterstate.admission.request import (
    CREATE,
    DELETE,
    UPDATE,
    AdmissionSettings,
    Context,
    Request,
    User,
)

__all__ = [
    "CREATE",
    "DELETE",
    "UPDATE",
    "AdmissionSettings",
    "AdmittedObject",
    "Context",
    "Request",
    "User",
    "admit",
]
