"""What pages are made of: the frame around every page, and words and controls that many have.

::

    layout          what every page has: sign-in, rights, errors as pages, the policy, navigation
    time_travel     the moment that an address asks for, and links that stay there
    language        the query language of lists of nodes
    formatting      times, amounts and shares as people read them; template filters
    outcomes        how many pods that a plan evicts find a node, and in which zones
    reasons_text    what stands in the way of a pod, read from the scheduler's sentence
    yaml_input      YAML that a person typed, as an object, and the errors that validation found
    downloads       tables as files
"""
