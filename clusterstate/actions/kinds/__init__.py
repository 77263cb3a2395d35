"""Writers of single kinds, where a kind needs more than ``actions.writing.Writer``.

::

    nodes, eviction_warnings    taints of nodes and their times; warnings of a dry run
    events                      Events, recorded in bulk or created by clients
    services                    cluster IPs and node ports
    pod_groups                  conditions of many groups at once
    roles                       users cannot grant rights that they lack
    certificates                approving and signing needs a right for that signer
    quota_writer                ResourceQuotas, counted again when they change
"""
