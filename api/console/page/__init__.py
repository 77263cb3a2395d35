"""The frame around every page, and words and controls of many pages.

::

    layout          the frame: sign-in, rights, errors as pages, the policy, navigation
    time_travel     the past moment of a page, and links that keep it
    language        the query language of lists of nodes
    formatting      times, amounts and shares as people read them; template filters
    outcomes        how many pods that a plan evicts find a node, and in which zones
    reasons_text    parses the reasons why a pod waits from the scheduler's message
    yaml_input      parses YAML that a person typed; validation's errors for the form
    downloads       tables as files
"""
